//! Gauges that the watchdog resets while the part that sets them is silent.

use std::sync::Arc;

use metrics::AgentMetrics;
use snapshot::{NodeWaits, Published};
use watchdog::{Part, Silent};

/// The gauges, and the states of all parts.
pub(crate) struct Claims {
    pub(crate) metrics: Arc<AgentMetrics>,
    pub(crate) waits: Published<NodeWaits>,
}

impl Claims {
    /// Exports the state of each watched part, and resets the gauges of the silent ones; each part sets them again in its
    /// next round.
    pub(crate) fn update(&self, watched: &[Part], silent: &[Silent]) {
        silent.iter().for_each(|silent| self.withdraw(silent.part));
        let is_up = |part: Part| !silent.iter().any(|silent| silent.part == part);
        self.metrics.set_subsystems(watched.iter().map(|&part| (part.as_str(), is_up(part))));
    }

    fn withdraw(&self, part: Part) {
        match part {
            Part::Pinning => self.metrics.pinning().set_enforcing(Some("the pinning thread does not work")),
            Part::SchedTrace => {
                self.waits.publish(sched_trace::not_in_force("stalled: its thread does not work".to_owned()));
            }
            Part::Advice => self.metrics.advice().set(Vec::new()),
            _ => {}
        }
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
        let watchdog = Watchdog::new();
        let _works = watchdog.watch(Part::Sampler, Duration::from_secs(1));
        for part in [Part::Pinning, Part::SchedTrace] {
            drop(watchdog.watch(part, Duration::from_secs(1)));
        }
        claims.update(&[Part::Sampler, Part::Pinning], &watchdog.silent());
        let text = page(&claims.metrics);
        assert!(text.contains("cpuwarden_pinning_enforcing{reason=\"the pinning thread does not work\"} 0"), "{text}");
        assert!(!text.contains("cpuwarden_pinning_enforcing{reason=\"\"}"), "{text}");
        assert!(text.contains("cpuwarden_subsystem_up{subsystem=\"pinning\"} 0"), "{text}");
        assert!(text.contains("cpuwarden_subsystem_up{subsystem=\"sampler\"} 1"), "{text}");
        let feature = claims.waits.latest().feature.clone().unwrap();
        assert!(!feature.enabled && feature.reason.contains("stalled"), "{feature:?}");
    }
}
