//! Log lines and metrics of CPU limits that burst.

use metrics::BurstMetrics;
use yielding::{BurstChange, BurstReport, Bursting, Mode};

/// Log lines for changes only.
#[derive(Debug, Default)]
pub(crate) struct Log {
    mode: Option<Mode>,
    errors: Vec<String>,
}

impl Log {
    pub(crate) fn report(&mut self, report: &BurstReport) {
        if self.mode.as_ref() != Some(&report.mode) {
            match &report.mode {
                Mode::Enforcing => tracing::info!("CPU limits burst"),
                Mode::Observing(reason) => {
                    tracing::info!(reason, "observing CPU burst; writing nothing");
                }
            }
            self.mode = Some(report.mode.clone());
        }
        for (container, change) in &report.changes {
            let Bursting { namespace, pod, container, percent, .. } = container;
            match change {
                BurstChange::Raised { without, with } => tracing::info!(
                    namespace,
                    pod,
                    container,
                    percent,
                    throttled_without = without,
                    throttled_with = with,
                    "burst raised"
                ),
                BurstChange::Ended(reason) => {
                    tracing::info!(namespace, pod, container, reason, "burst ended");
                }
            }
        }
        if report.writes.rejected > 0 {
            tracing::warn!(
                rejected = report.writes.rejected,
                "the kernel rejects a burst; the cgroup has none for ten minutes"
            );
        }
        if self.errors != report.writes.errors {
            for error in &report.writes.errors {
                tracing::warn!(error, "failed to write a burst");
            }
            self.errors.clone_from(&report.writes.errors);
        }
    }
}

/// Exports a pass.
pub(crate) fn export(metrics: &BurstMetrics, report: &BurstReport) {
    metrics.set_enforcing(match &report.mode {
        Mode::Enforcing => None,
        Mode::Observing(reason) => Some(reason),
    });
    metrics.set_bursts(
        report
            .containers
            .iter()
            .map(|one| ([&*one.namespace, &*one.pod, &*one.container], one.usec as f64 / 1e6)),
    );
    let counts = report.others.iter().map(|(&reason, &count)| (reason, count));
    let own = [("burst", report.containers.len()), ("scaled", report.scaled)];
    metrics.set_containers(counts.chain(own));
    for (_, change) in &report.changes {
        metrics.add_change(change.names());
    }
    let writes = &report.writes;
    for (setting, times) in &writes.written {
        metrics.add_writes(setting.name(), "ok", *times);
    }
    for (result, times) in [
        ("restored", writes.restored),
        ("repaired", writes.repaired),
        ("rejected", writes.rejected),
        ("error", writes.errors.len() as u64),
    ] {
        metrics.add_writes("all", result, times);
    }
}
