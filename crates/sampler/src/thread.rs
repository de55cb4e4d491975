//! The sampler's thread: wakes at absolute deadlines, and between them when cgroups come and go.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use watchdog::JoinedThread;

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

/// Starts the sampler on its own thread, `sampler`, which ends after the tick in progress when the
/// handle is dropped. `report` is called after every tick, on that thread.
///
/// # Errors
/// Fails if no descriptor or thread can be created.
pub fn spawn(
    mut sampler: Sampler,
    mut report: impl FnMut(TickReport) + Send + 'static,
) -> io::Result<JoinedThread> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    sampler.stop_when_readable(&stop)?;
    let stop = move || {
        // A write to an eventfd fails only if its counter is full, and then the thread is woken
        // anyway.
        let _ = rustix::io::write(&stop, &1u64.to_ne_bytes());
    };
    JoinedThread::spawn("sampler", stop, move || {
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
    })
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
    fn deadlines_are_multiples_of_the_interval_in_the_future() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(next_deadline(start, second, start + second / 10), start + second);
        assert_eq!(next_deadline(start, second, start + second), start + 2 * second);
        assert_eq!(next_deadline(start, second, start + second * 35 / 10), start + 4 * second);
    }
}
