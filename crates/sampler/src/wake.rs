//! Events that wake the sampler between ticks: cgroups that come and go, processes that end, the
//! stop signal.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cgroup::CgroupId;

/// Reason for a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// The tree has changes.
    Tree,
    /// The first process of this cgroup has ended.
    Exit(CgroupId),
    /// The thread must stop.
    Stop,
}

const TREE: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
/// Maximum number of events taken at once; further events wait for the next call.
const AT_ONCE: usize = 64;

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Wake {
    epoll: OwnedFd,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Wakes with [`Wakeup::Tree`] when this is readable.
    pub(crate) fn on_tree(&self, tree: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, tree, EventData::new_u64(TREE), EventFlags::IN)?)
    }

    /// Wakes with [`Wakeup::Stop`] when this is readable.
    pub(crate) fn on_stop(&self, stop: &OwnedFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?)
    }

    /// Wakes with [`Wakeup::Exit`] when the process ends, for as long as the returned descriptor is
    /// kept.
    ///
    /// # Errors
    /// Fails if the process is gone or not in this PID namespace.
    pub(crate) fn on_exit(&self, id: CgroupId, pid: u32) -> io::Result<OwnedFd> {
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(none)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        epoll::add(&self.epoll, process.as_fd(), EventData::new_u64(id.to_u64()), EventFlags::IN)?;
        Ok(process)
    }

    /// Waits for events; returns only `None` on a timeout.
    pub(crate) fn wait(&self, timeout: Duration) -> [Option<Wakeup>; AT_ONCE] {
        let mut wakeups = [None; AT_ONCE];
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let mut buffer = [const { MaybeUninit::<Event>::uninit() }; AT_ONCE];
        // EINTR is treated as a timeout: the caller checks the clock.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&timeout)) else {
            return wakeups;
        };
        for (wakeup, event) in wakeups.iter_mut().zip(events) {
            *wakeup = Some(match event.data.u64() {
                TREE => Wakeup::Tree,
                STOP => Wakeup::Stop,
                id => Wakeup::Exit(CgroupId::from_u64(id)),
            });
        }
        wakeups
    }
}
