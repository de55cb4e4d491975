//! The sampler's thread: absolute deadlines, woken between them when cgroups come and go.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::sampler::Sampler;

/// What one tick took, for the agent's own metrics.
#[derive(Debug, Clone, Copy)]
pub struct TickReport {
    /// How long after its deadline the tick began.
    pub lateness: Duration,
    /// How long it took.
    pub duration: Duration,
    /// Time until the next one, as the cost allows.
    pub interval: Duration,
}

/// The running thread; it ends when this is dropped or [`Running::stop`] is called.
#[derive(Debug)]
pub struct Running {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Ends the thread after the tick in progress and waits for it.
    pub fn stop(mut self) {
        self.end();
    }

    /// The thread is still there; false after it panicked.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(&mut self) {
        // An eventfd takes eight bytes; it can only fail when its counter is full, and then the thread is woken anyway.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the sampler on its own thread, `sampler`. `report` is called after every tick, on that thread.
///
/// # Errors
/// No descriptor or thread is to be had.
pub fn spawn(mut sampler: Sampler, mut report: impl FnMut(TickReport) + Send + 'static) -> io::Result<Running> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    sampler.stop_when_readable(&stop)?;
    let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(move || {
        let mut deadline = Instant::now();
        loop {
            let began = Instant::now();
            sampler.tick(began);
            let ended = Instant::now();
            let (lateness, duration) = (began.duration_since(deadline), ended.duration_since(began));
            let interval = sampler.interval();
            report(TickReport { lateness, duration, interval });
            deadline = next_deadline(deadline, interval, ended);
            if sampler.wait(deadline).is_break() {
                return;
            }
        }
    })?;
    Ok(Running { stop, thread: Some(thread) })
}

/// The next multiple of the interval after `deadline` that is still to come: a tick that overran, or a machine that
/// slept, loses ticks and never makes them up in a burst.
fn next_deadline(deadline: Instant, interval: Duration, now: Instant) -> Instant {
    let next = deadline + interval;
    if next > now {
        return next;
    }
    let missed = now.duration_since(deadline).as_nanos() / interval.as_nanos().max(1);
    deadline + interval * u32::try_from(missed + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_multiples_of_the_interval_and_never_in_the_past() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(next_deadline(start, second, start + second / 10), start + second);
        assert_eq!(next_deadline(start, second, start + second), start + 2 * second);
        assert_eq!(next_deadline(start, second, start + second * 35 / 10), start + 4 * second);
    }
}
