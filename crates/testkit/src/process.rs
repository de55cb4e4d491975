//! A process in a cgroup, killed on drop.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

use crate::Cgroup;

/// Line that a program prints when it is ready.
pub const READY: &str = "workload is running";

impl Cgroup {
    /// A program in this cgroup. A shell enters the cgroup and then executes the program, which so
    /// uses no CPU time elsewhere.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let enter =
            r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", enter, "sh"])
            .args(self.dirs().iter().map(|directory| directory.join("cgroup.procs")));
        command.arg("--").arg(program);
        command
    }
}

/// A process, killed on drop. It must run until then: an early exit fails its test.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts the command and returns its output up to the line that reports that it runs. The
    /// command must exit at the end of its standard input.
    #[must_use]
    pub fn start(mut command: Command, is_ready: impl Fn(&str) -> bool) -> (Self, String) {
        let (mut output, running) = Self::piped(&mut command)
            .unwrap_or_else(|error| panic!("{command:?}: {error}; is it installed?"));
        let mut printed = String::new();
        loop {
            let start = printed.len();
            let length = output.read_line(&mut printed).expect("the output is text");
            assert!(
                length > 0,
                "{command:?} ended before it was ready; is it installed? It printed: {printed}"
            );
            if is_ready(printed[start..].trim_end_matches('\n')) {
                break;
            }
        }
        // A program that prints into a closed pipe dies, and libtest prints that a workload's test
        // takes over a minute.
        std::thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        (running, printed)
    }

    fn piped(command: &mut Command) -> io::Result<(BufReader<std::process::ChildStdout>, Self)> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("it is piped");
        Ok((BufReader::new(output), Self { child }))
    }

    /// Lets a process begin that waits for a line on its standard input.
    ///
    /// # Panics
    /// The process has ended.
    pub fn go(&mut self) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"\n").unwrap_or_else(|error| panic!("a workload has ended: {error}"));
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process ID, for signals.
    #[must_use]
    pub fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let early = self.child.try_wait().unwrap_or_default();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(status) = early.filter(|_| !std::thread::panicking()) {
            panic!(
                "process {} ended before its test did, so the test measured an idle cgroup: {status}",
                self.pid()
            );
        }
    }
}
