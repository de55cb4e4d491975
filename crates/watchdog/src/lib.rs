//! Watches whether every part of the agent works: each beats once per round, and late or ended
//! parts are reported.
//!
//! Only enabled parts are watched. `/healthz` and the metrics read the result; the watchdog does
//! not act on a part. A part that may panic runs in [`keep_running`], which starts it again.

mod checks;
pub mod errors;
mod restart;
mod worker;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use checks::start_checks;
pub use restart::{RunEnd, keep_running, restart_until_stopped};
pub use worker::{JoinedThread, Worker};

/// A part is late after this number of its rounds, but not before [`LATE_AT_LEAST`].
const LATE_AFTER_ROUNDS: u32 = 10;
const LATE_AT_LEAST: Duration = Duration::from_secs(60);

/// A thread or task with its own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The sampler's thread.
    Sampler,
    /// The pinning thread.
    Pinning,
    /// The thread that makes best-effort pods yield.
    Yielding,
    /// The thread of the eBPF trace.
    SchedTrace,
    /// The task that asks for the pod list.
    Pods,
    /// The task that asks the pod-resources socket.
    PodResources,
    /// The task that asks for the kubelet's CPU manager policy.
    CpuManagerPolicy,
    /// The advisor's task.
    Advice,
    /// The task that keeps the history of the page and the JSON API.
    Timeline,
    /// The thread that samples arrivals.
    ArrivalSampler,
    /// The thread that reads garbage collection.
    GarbageCollection,
    /// The task that judges which pods are slowed, and by what.
    Verdicts,
    /// The thread that answers the container runtime.
    Nri,
    /// The task that publishes injected variables.
    Injection,
    /// The publisher of Kubernetes Events.
    Events,
    /// The task that reports the condition of the node.
    NodeCondition,
    /// The endpoint's thread.
    Http,
    /// The watchdog's own thread.
    Watchdog,
}

impl Part {
    /// Value of the label `subsystem`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sampler => "sampler",
            Self::Pinning => "pinning",
            Self::Yielding => "yielding",
            Self::SchedTrace => "sched_trace",
            Self::Pods => "pods",
            Self::PodResources => "pod_resources",
            Self::CpuManagerPolicy => "cpu_manager_policy",
            Self::Advice => "advice",
            Self::Timeline => "timeline",
            Self::ArrivalSampler => "arrival_sampler",
            Self::GarbageCollection => "garbage_collection",
            Self::Verdicts => "verdicts",
            Self::Nri => "nri",
            Self::Injection => "injection",
            Self::Events => "events",
            Self::NodeCondition => "node_condition",
            Self::Http => "http",
            Self::Watchdog => "watchdog",
        }
    }
}

type Parts = Vec<(Part, Arc<Pulse>)>;

/// The watched parts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Watchdog {
    parts: Arc<Mutex<Parts>>,
    began: Instant,
}

/// Time of a part's last round and time when it becomes late, milliseconds since the start of the
/// watchdog.
#[derive(Debug, Default)]
struct Pulse {
    last_ms: AtomicU64,
    /// [`ENDED`] once the part has ended.
    late_ms: AtomicU64,
}

const ENDED: u64 = 0;

/// A part that does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent {
    /// The part.
    pub part: Part,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Ended,
    /// Time since the last round.
    Late(Duration),
}

impl fmt::Display for Silent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::Ended => write!(out, "{} has ended", self.part.as_str()),
            Fault::Late(since) => {
                write!(out, "{} has made no progress for {} s", self.part.as_str(), since.as_secs())
            }
        }
    }
}

impl Default for Watchdog {
    fn default() -> Self {
        Self::new()
    }
}

impl Watchdog {
    /// A watchdog that watches nothing yet.
    pub fn new() -> Self {
        Self { parts: Arc::default(), began: Instant::now() }
    }

    /// Watches a part whose first round is due within `every`; with [`Duration::MAX`], only for its
    /// end. Watching the same part again replaces the previous watch.
    pub fn watch(&self, part: Part, every: Duration) -> Beat {
        let pulse = Arc::new(Pulse::default());
        let beat = Beat { pulse: Arc::clone(&pulse), watchdog: self.clone() };
        beat.beat(every);
        let mut parts = self.parts();
        parts.retain(|(other, _)| *other != part);
        parts.push((part, pulse));
        beat
    }

    /// Watched parts that are late or have ended.
    pub fn silent(&self) -> Vec<Silent> {
        self.silent_at(self.now_ms())
    }

    /// All watched parts.
    fn watched(&self) -> Vec<Part> {
        self.parts().iter().map(|(part, _)| *part).collect()
    }

    fn silent_at(&self, now_ms: u64) -> Vec<Silent> {
        let fault = |pulse: &Pulse| match pulse.late_ms.load(Ordering::Relaxed) {
            ENDED => Some(Fault::Ended),
            late_ms if now_ms >= late_ms => Some(Fault::Late(Duration::from_millis(
                now_ms.saturating_sub(pulse.last_ms.load(Ordering::Relaxed)),
            ))),
            _ => None,
        };
        let parts = self.parts();
        parts
            .iter()
            .filter_map(|(part, pulse)| Some(Silent { part: *part, fault: fault(pulse)? }))
            .collect()
    }

    fn now_ms(&self) -> u64 {
        millis(self.began.elapsed())
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Held by a part while it works. Dropping it without [`Beat::retire`] means that the part has
/// ended.
#[derive(Debug)]
pub struct Beat {
    pulse: Arc<Pulse>,
    watchdog: Watchdog,
}

impl Beat {
    /// Reports a finished round; the next one is due within `every`.
    pub fn beat(&self, every: Duration) {
        let now_ms = self.watchdog.now_ms();
        let late = every.saturating_mul(LATE_AFTER_ROUNDS).max(LATE_AT_LEAST);
        self.pulse.last_ms.store(now_ms, Ordering::Relaxed);
        self.pulse.late_ms.store(now_ms.saturating_add(millis(late)), Ordering::Relaxed);
    }

    /// Ends the watch, because the part is switched off.
    pub fn retire(self) {
        self.watchdog.parts().retain(|(_, pulse)| !Arc::ptr_eq(pulse, &self.pulse));
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.pulse.late_ms.store(ENDED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn texts(silent: &[Silent]) -> Vec<String> {
        silent.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_part_is_late_after_ten_rounds_and_at_least_a_minute() {
        let watchdog = Watchdog::new();
        let _fast = watchdog.watch(Part::Sampler, SECOND);
        let _slow = watchdog.watch(Part::Pinning, 10 * SECOND);
        let now = watchdog.now_ms();
        assert!(watchdog.silent_at(now + 59_000).is_empty());
        assert_eq!(
            texts(&watchdog.silent_at(now + 61_000)),
            ["sampler has made no progress for 61 s"]
        );
        assert_eq!(watchdog.silent_at(now + 99_000).len(), 1);
        assert_eq!(watchdog.silent_at(now + 101_000).len(), 2);
    }

    #[test]
    fn a_part_that_ended_is_named_at_once_until_it_is_watched_again() {
        let watchdog = Watchdog::new();
        let beat = watchdog.watch(Part::SchedTrace, SECOND);
        assert!(watchdog.silent().is_empty());
        drop(beat);
        assert_eq!(texts(&watchdog.silent()), ["sched_trace has ended"]);
        let _again = watchdog.watch(Part::SchedTrace, SECOND);
        assert!(watchdog.silent().is_empty());
    }

    #[test]
    fn a_part_without_rounds_is_watched_only_for_its_end() {
        let watchdog = Watchdog::new();
        let beat = watchdog.watch(Part::Nri, Duration::MAX);
        assert!(watchdog.silent_at(watchdog.now_ms() + 1_000_000_000).is_empty());
        drop(beat);
        assert_eq!(texts(&watchdog.silent()), ["nri has ended"]);
    }

    #[test]
    fn a_part_whose_work_is_switched_off_is_not_watched() {
        let watchdog = Watchdog::new();
        watchdog.watch(Part::SchedTrace, SECOND).retire();
        assert!(watchdog.silent().is_empty() && watchdog.watched().is_empty());
    }

    #[test]
    fn a_panic_of_a_thread_ends_its_part() {
        let watchdog = Watchdog::new();
        let beat = watchdog.watch(Part::ArrivalSampler, SECOND);
        let ended = std::thread::spawn(move || {
            beat.beat(SECOND);
            panic!("on purpose");
        });
        ended.join().unwrap_err();
        assert_eq!(texts(&watchdog.silent()), ["arrival_sampler has ended"]);
    }
}
