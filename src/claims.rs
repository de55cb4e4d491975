//! Consequences of a silent part: a line in the log, and gauges that are reset while the part that
//! sets them is silent.

use std::sync::Arc;

use metrics::AgentMetrics;
use snapshot::{NodeWaits, Published};
use watchdog::{Part, Silent};

/// The gauges, and the parts that were silent at the last check.
pub(crate) struct Claims {
    metrics: Arc<AgentMetrics>,
    waits: Published<NodeWaits>,
    before: Vec<Silent>,
}

impl Claims {
    pub(crate) fn new(metrics: Arc<AgentMetrics>, waits: Published<NodeWaits>) -> Self {
        Self { metrics, waits, before: Vec::new() }
    }

    /// Exports the state of each watched part, logs what has changed, and resets the gauges of the
    /// silent parts; each part sets them again in its next round.
    pub(crate) fn update(&mut self, watched: &[Part], silent: &[Silent]) {
        log_changes(&self.before, silent);
        self.before = silent.to_vec();
        silent.iter().for_each(|silent| self.withdraw(silent.part));
        let is_up = |part: Part| !silent.iter().any(|silent| silent.part == part);
        self.metrics.set_subsystems(watched.iter().map(|&part| (part.as_str(), is_up(part))));
    }

    fn withdraw(&self, part: Part) {
        match part {
            Part::Pinning => {
                self.metrics.pinning().set_enforcing(Some("the pinning thread is stalled"));
            }
            Part::Yielding => {
                let reason = "the thread that writes settings of pods is stalled";
                self.metrics.best_effort().withdraw(reason);
                self.metrics.burst().withdraw(reason);
            }
            Part::SchedTrace => {
                self.waits.publish(sched_trace::not_in_force(
                    "stalled: the trace's thread makes no progress".to_owned(),
                ));
            }
            Part::Advice => self.metrics.advice().set(Vec::new()),
            _ => {}
        }
    }
}

fn log_changes(before: &[Silent], now: &[Silent]) {
    let is_among = |all: &[Silent], part| all.iter().any(|silent| silent.part == part);
    for silent in now.iter().filter(|silent| !is_among(before, silent.part)) {
        tracing::error!(
            subsystem = silent.part.as_str(),
            "{silent}; /healthz fails until it recovers"
        );
    }
    for back in before.iter().filter(|silent| !is_among(now, silent.part)) {
        tracing::info!(subsystem = back.part.as_str(), "recovered");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use watchdog::Watchdog;

    use super::*;

    fn page(metrics: &AgentMetrics) -> String {
        let mut exposition = metrics::Exposition::new(1000);
        let snapshot = snapshot::NodeSnapshot::default();
        String::from_utf8_lossy(exposition.render(&snapshot, metrics, metrics::Format::Text))
            .into_owned()
    }

    #[test]
    fn gauges_of_a_stalled_subsystem_are_reset() {
        let metrics = Arc::new(AgentMetrics::new(metrics::Build { version: "0", revision: "0" }));
        let mut claims = Claims::new(metrics, Published::default());
        claims.metrics.pinning().set_enforcing(None);
        claims.metrics.best_effort().set_enforcing(None);
        assert!(page(&claims.metrics).contains("cpuwarden_pinning_enforcing{reason=\"\"} 1"));
        let watchdog = Watchdog::new();
        let _works = watchdog.watch(Part::Sampler, Duration::from_secs(1));
        for part in [Part::Pinning, Part::SchedTrace, Part::Yielding] {
            drop(watchdog.watch(part, Duration::from_secs(1)));
        }
        claims.update(&[Part::Sampler, Part::Pinning], &watchdog.silent());
        let text = page(&claims.metrics);
        assert!(
            text.contains(
                "cpuwarden_pinning_enforcing{reason=\"the pinning thread is stalled\"} 0"
            ),
            "{text}"
        );
        assert!(!text.contains("_enforcing{reason=\"\"}"), "{text}");
        assert!(text.contains("cpuwarden_subsystem_up{subsystem=\"pinning\"} 0"), "{text}");
        assert!(text.contains("cpuwarden_subsystem_up{subsystem=\"sampler\"} 1"), "{text}");
        let feature = claims.waits.latest().feature.clone().unwrap();
        assert!(!feature.enabled && feature.reason.contains("stalled"), "{feature:?}");
    }
}
