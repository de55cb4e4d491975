//! Exclusive CPUs.

use std::sync::Arc;

use kernel_text::CpuSet;
use metrics::{AgentMetrics, PinningMetrics};
use pinning::{PassReport, PinningStatus, Round};
use watchdog::Part;

use crate::events::{EventSender, PinningEvents};

/// Reports the passes over the cpusets: to the log, the metrics, and as Events.
#[derive(Debug)]
pub struct PinningReporter {
    metrics: Arc<AgentMetrics>,
    events: Option<PinningEvents>,
    status: Option<PinningStatus>,
}

impl PinningReporter {
    /// A reporter; `events` is `None` without `--events`.
    #[must_use]
    pub fn new(metrics: Arc<AgentMetrics>, events: Option<EventSender>) -> Self {
        Self { metrics, events: events.map(PinningEvents::new), status: None }
    }

    /// Reports a round. Returns whether the thread works: a panic is only counted.
    pub fn report(&mut self, round: &Round) -> bool {
        let metrics = self.metrics.pinning();
        match round {
            Round::Waited => {}
            Round::Passed(report) => {
                log_if_changed(&mut self.status, report);
                export(metrics, report);
                if let Some(events) = &mut self.events {
                    events.report(report);
                }
            }
            Round::Panicked => {
                self.metrics.subsystem_restarted(Part::Pinning.as_str());
                metrics.set_enforcing(Some("the pinning thread panicked; restarting it"));
                return false;
            }
        }
        true
    }
}

/// Logs one line when the status changes. If enforcement is configured but not in effect, the line
/// is a warning.
fn log_if_changed(last: &mut Option<PinningStatus>, report: &PassReport) {
    let now = &report.status;
    if last.as_ref() == Some(now) {
        return;
    }
    match report.stepped_back.keys().any(|(scope, _)| *scope == "node") {
        true => tracing::warn!(status = %now, "the status of pinning changed"),
        false => tracing::info!(status = %now, "the status of pinning changed"),
    }
    *last = Some(now.clone());
}

fn export(metrics: &PinningMetrics, report: &PassReport) {
    metrics.set_enforcing(match &report.status {
        PinningStatus::Enforcing => None,
        PinningStatus::Observing(reason) => Some(reason),
    });
    metrics.set_stepped_back(
        report.stepped_back.iter().map(|(&(scope, reason), &count)| ([scope, reason], count)),
    );
    if let Some(pools) = &report.pools {
        let named = [
            ("exclusive", &pools.exclusive),
            ("share", &pools.share),
            ("best_effort", &pools.best_effort),
            ("reserved", &pools.reserved),
            ("kubelet", &pools.kubelet),
        ];
        named.into_iter().for_each(|(name, cpus)| metrics.set_pool(name, cpus.len()));
    }
    let pins = report.pins.iter().map(|pin| {
        let count = pin.cpus.parse::<CpuSet>().map_or(0, |cpus| cpus.len());
        ([&*pin.namespace, &pin.pod, &pin.cpu_qos, &pin.bind_policy], count)
    });
    metrics.set_pinned(pins);
    metrics.add_overlaps(
        report.overlaps.iter().map(|((namespace, pod), time)| ([&**namespace, &**pod], *time)),
    );
    for (operation, held, times) in report.operations.iter() {
        metrics.add_operations(operation.as_str(), held, times);
    }
    report.rejections().for_each(|reason| metrics.add_rejection(reason.as_str()));
}
