//! The watchdog's own thread: logs parts that fall silent, and resets the gauges that those parts have set.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use metrics::AgentMetrics;
use snapshot::{NodeWaits, Published};

use super::{Beat, Part, Silent, Watchdog};

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Gauges to reset when the part that set them falls silent.
pub(crate) struct Claims {
    pub(crate) metrics: Arc<AgentMetrics>,
    pub(crate) waits: Published<NodeWaits>,
}

/// The running thread; dropping this stops it.
pub(crate) struct Checking {
    _stop: mpsc::Sender<()>,
}

impl Checking {
    /// Starts the thread.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub(crate) fn start(watchdog: Watchdog, claims: Claims) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let beat = watchdog.watch(Part::Watchdog, CHECK_EVERY);
        let run = move || check_until_stopped(&watchdog, &claims, &beat, &stopped);
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

fn check_until_stopped(watchdog: &Watchdog, claims: &Claims, beat: &Beat, stopped: &Receiver<()>) {
    let mut before = Vec::new();
    while stopped.recv_timeout(CHECK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let silent = watchdog.silent();
        log_changes(&before, &silent);
        claims.withdraw(&silent);
        let is_up = |part| !silent.iter().any(|silent| silent.part == part);
        let states = watchdog.watched().into_iter().map(|part| (part.as_str(), is_up(part))).collect::<Vec<_>>();
        claims.metrics.set_subsystems(states.into_iter());
        before = silent;
        beat.beat(CHECK_EVERY);
    }
}

fn log_changes(before: &[Silent], now: &[Silent]) {
    let is_among = |all: &[Silent], part| all.iter().any(|silent| silent.part == part);
    for silent in now.iter().filter(|silent| !is_among(before, silent.part)) {
        tracing::error!(subsystem = silent.part.as_str(), "{silent}; /healthz fails until it is back");
    }
    for back in before.iter().filter(|silent| !is_among(now, silent.part)) {
        tracing::info!(subsystem = back.part.as_str(), "back at work");
    }
}

impl Claims {
    /// Resets the gauges of silent parts; each part sets them again in its next round.
    fn withdraw(&self, silent: &[Silent]) {
        for silent in silent {
            match silent.part {
                Part::Pinning => self.metrics.pinning().set_enforcing(Some("the pinning thread does not work")),
                Part::SchedTrace => {
                    self.waits.publish(sched_trace::not_in_force("stalled: its thread does not work".to_owned()));
                }
                Part::Advice => self.metrics.advice().set(Vec::new()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watchdog::{Fault, LATE_AT_LEAST};

    fn page(metrics: &AgentMetrics) -> String {
        let mut exposition = metrics::Exposition::new(1000);
        let snapshot = snapshot::NodeSnapshot::default();
        String::from_utf8_lossy(exposition.render(&snapshot, metrics, metrics::Format::Text)).into_owned()
    }

    #[test]
    fn a_silent_part_claims_nothing_any_more() {
        let claims = Claims {
            metrics: Arc::new(AgentMetrics::new(metrics::Build { version: "0", revision: "0" })),
            waits: Published::default(),
        };
        claims.metrics.pinning().set_enforcing(None);
        assert!(page(&claims.metrics).contains("cpuwarden_pinning_enforcing{reason=\"\"} 1"));
        let late = |part| Silent { part, fault: Fault::Late(LATE_AT_LEAST) };
        claims.withdraw(&[late(Part::Pinning), late(Part::SchedTrace)]);
        let text = page(&claims.metrics);
        assert!(text.contains("cpuwarden_pinning_enforcing{reason=\"the pinning thread does not work\"} 0"), "{text}");
        assert!(!text.contains("cpuwarden_pinning_enforcing{reason=\"\"}"), "{text}");
        let feature = claims.waits.latest().feature.clone().unwrap();
        assert!(!feature.enabled && feature.reason.contains("stalled"), "{feature:?}");
    }
}
