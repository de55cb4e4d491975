//! The sampler's thread: wakes at absolute deadlines, and between them when cgroups come and go.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::sampler::Sampler;

/// Timing of one tick, for the agent's own metrics.
#[derive(Debug, Clone, Copy)]
pub struct TickReport {
    /// Delay between the deadline and the start of the tick.
    pub lateness: Duration,
    /// Duration of the tick.
    pub duration: Duration,
    /// Time until the next tick, set by the governor.
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

    /// Whether the thread is running; false after it panicked.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(&mut self) {
        // A write to an eventfd fails only if its counter is full, and then the thread is woken
        // anyway.
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

/// Starts the sampler on its own thread, `sampler`. `report` is called after every tick, on that
/// thread.
///
/// # Errors
/// Fails if no descriptor or thread can be created.
pub fn spawn(
    mut sampler: Sampler,
    mut report: impl FnMut(TickReport) + Send + 'static,
) -> io::Result<Running> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    sampler.stop_when_readable(&stop)?;
    let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(move || {
        let mut deadline = Instant::now();
        loop {
            let began = Instant::now();
            sampler.tick(began);
            let ended = Instant::now();
            let (lateness, duration) =
                (began.duration_since(deadline), ended.duration_since(began));
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

/// The next future deadline, a multiple of the interval after `deadline`. Ticks missed by an
/// overrun or while the machine was suspended are skipped, not made up in a burst.
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
