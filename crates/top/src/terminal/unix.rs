//! The terminal of Unix: waiting for keys, job control, width.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};

/// Time in which a stop signal reaches this thread.
const STOPPING: Duration = Duration::from_millis(500);

/// The terminal that crossterm reads: standard input, or else the controlling terminal.
pub(crate) struct Input(OwnedFd);

impl Input {
    pub(crate) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            stdin.as_fd().try_clone_to_owned().map(Self)
        } else {
            Ok(Self(File::open("/dev/tty")?.into()))
        }
    }

    /// Waits for a key, at most this long. crossterm must not wait: on a terminal that was closed it
    /// never returns.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            // A signal, such as the one for a new size.
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let found = fds[0].revents();
        if found.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the terminal is gone"));
        }
        if found.contains(PollFlags::NVAL) {
            // macOS documents that its poll(2) does not support devices. It returns at once then.
            event::poll(time)?;
        }
        Ok(())
    }
}

/// Stops the whole process group, as the terminal does: the shell waits for all of it.
pub(crate) fn stop_job() -> io::Result<()> {
    kill_current_process_group(Signal::TSTP)?;
    // Any thread may receive the signal. Where nothing could continue this process, the kernel
    // ignores it.
    thread::sleep(STOPPING);
    Ok(())
}

/// Width of the terminal on standard output, if it is one.
pub(crate) fn columns() -> Option<u16> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col)
}
