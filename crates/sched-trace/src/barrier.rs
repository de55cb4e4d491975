//! Waits until runs of the program that are in progress have ended.
#![allow(unsafe_code, reason = "a system call without a wrapper; nothing else in this module is")]

use std::thread::sleep;
use std::time::Duration;

/// Of membarrier(2): waits until each CPU has left what it does with preemption disabled.
const GLOBAL: libc::c_int = 1;
/// A thousand times as long as a run.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until all runs that have begun by now have ended. A run disables preemption.
pub(crate) fn wait_for_runs() {
    // SAFETY: takes no pointer.
    let is_done = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } == 0;
    wait_if_refused(is_done, sleep);
}

/// The kernel refuses it where `nohz_full` names CPUs.
fn wait_if_refused(is_done: bool, wait: impl FnOnce(Duration)) {
    if !is_done {
        wait(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, wait_if_refused};

    #[test]
    fn a_refused_barrier_is_replaced_by_a_pause() {
        let waited = |is_done| {
            let mut waited = None;
            wait_if_refused(is_done, |time| waited = Some(time));
            waited
        };
        assert_eq!([true, false].map(waited), [None, Some(PAUSE)]);
    }
}
