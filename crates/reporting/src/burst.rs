//! CPU limits that burst: log lines, metrics, and Events.

use std::collections::HashMap;

use metrics::BurstMetrics;
use yielding::{BurstChange, BurstReport, Bursting, Mode};

use crate::events::Burst;
use crate::writes::{Seen, export_writes, reason_not};

/// Logs the changes of a pass.
pub(crate) fn log(seen: &mut Seen, report: &BurstReport) {
    if seen.is_new_mode(&report.mode) {
        match &report.mode {
            Mode::Enforcing => tracing::info!("CPU limits burst"),
            Mode::Observing(reason) => {
                tracing::info!(%reason, "observing CPU burst; writing nothing");
            }
        }
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
                let reason = reason.name();
                tracing::info!(namespace, pod, container, reason, "burst ended");
            }
            BurstChange::Rejected => tracing::warn!(
                namespace,
                pod,
                container,
                "the annotation koordinator.sh/cpuBurst requests a quota above the limit \
                 (cfsQuotaBurst), which is not offered"
            ),
        }
    }
    if report.writes.rejected > 0 {
        tracing::warn!(
            rejected = report.writes.rejected,
            "the kernel rejects a burst; the cgroup has none for ten minutes"
        );
    }
    for error in seen.new_errors(&report.writes) {
        tracing::warn!(error, "failed to write a burst");
    }
}

/// Limits that burst, for Events.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    /// By UID of the pod and name of the container.
    chosen: HashMap<(String, String), Chosen>,
}

/// A limit that bursts or would burst.
#[derive(Debug, Default)]
struct Chosen {
    /// Replayed shares of throttled periods without and with burst.
    throttled: [f64; 2],
    /// Whether its burst is written.
    is_written: bool,
}

impl Bursts {
    /// The limits whose burst began, ended or was rejected with a pass: without enforcement none
    /// bursts. A burst that is only raised has not begun again, and one of a removed container has
    /// no end.
    pub(crate) fn next<'a>(&mut self, report: &'a BurstReport) -> Vec<(&'a Bursting, Burst<'a>)> {
        let mut changed = Vec::new();
        let end = |one: &'a Bursting, reason: String| {
            (one, Burst::Ends { container: &one.container, reason })
        };
        for (one, change) in &report.changes {
            match change {
                BurstChange::Raised { without, with } => {
                    self.chosen.entry(key(one)).or_default().throttled = [*without, *with];
                }
                BurstChange::Ended(reason) => {
                    let known = self.chosen.remove(&key(one));
                    if known.is_some_and(|known| known.is_written) {
                        changed.push(end(one, reason.name().replace('_', " ")));
                    }
                }
                BurstChange::Rejected => {
                    changed.push((one, Burst::Rejected { container: &one.container }));
                }
            }
        }
        let mut before = std::mem::take(&mut self.chosen);
        for one in &report.containers {
            let Some(mut chosen) = before.remove(&key(one)) else { continue };
            let was_written = chosen.is_written;
            chosen.is_written = report.mode == Mode::Enforcing;
            match &report.mode {
                Mode::Enforcing if !was_written => {
                    let ([without, with], container) = (chosen.throttled, &*one.container);
                    let percent = one.percent;
                    changed.push((one, Burst::Begins { container, percent, without, with }));
                }
                Mode::Observing(reason) if was_written => {
                    changed.push(end(one, reason.to_string()));
                }
                Mode::Enforcing | Mode::Observing(_) => {}
            }
            self.chosen.insert(key(one), chosen);
        }
        changed
    }
}

fn key(one: &Bursting) -> (String, String) {
    (one.uid.clone(), one.container.clone())
}

/// Exports a pass.
pub(crate) fn export(metrics: &BurstMetrics, report: &BurstReport) {
    metrics.set_enforcing(reason_not(&report.mode).as_deref());
    metrics.set_bursts(
        report
            .containers
            .iter()
            .map(|one| ([&*one.namespace, &*one.pod, &*one.container], one.usec as f64 / 1e6)),
    );
    let counts = report.others.iter().map(|(reason, &count)| (reason.name(), count));
    metrics.set_containers(counts.chain([("burst", report.containers.len())]));
    for (_, change) in &report.changes {
        metrics.add_change(change.names());
    }
    export_writes(&report.writes, |setting, result, times| {
        metrics.add_writes(setting, result, times);
    });
}

#[cfg(test)]
mod tests {
    use yielding::Why;
    use yielding::rules::Ineligible;

    use super::*;

    fn limit(percent: u64) -> Bursting {
        Bursting {
            namespace: "shop".to_owned(),
            pod: "cart-0".to_owned(),
            container: "app".to_owned(),
            uid: "u".to_owned(),
            percent,
            usec: 1000,
        }
    }

    fn pass(mode: &Mode, in_force: Option<u64>, change: Option<BurstChange>) -> BurstReport {
        BurstReport {
            mode: mode.clone(),
            containers: in_force.map(limit).into_iter().collect(),
            others: Default::default(),
            changes: change.into_iter().map(|change| (limit(0), change)).collect(),
            writes: Default::default(),
        }
    }

    #[test]
    fn a_written_burst_begins_and_ends_once() {
        let observing = Mode::Observing(Why::Drained);
        let raised = || Some(BurstChange::Raised { without: 0.2, with: 0.01 });
        let ended = || Some(BurstChange::Ended(Ineligible::NotThrottled));
        let mut bursts = Bursts::default();
        let mut next = |mode: &Mode, in_force, change| {
            let report = pass(mode, in_force, change);
            let of = |(_, burst)| match burst {
                Burst::Begins { percent, without, with, .. } => {
                    format!("{percent} {without} {with}")
                }
                Burst::Ends { reason, .. } => reason,
                Burst::Rejected { container } => format!("{container} rejected"),
            };
            bursts.next(&report).into_iter().map(of).collect::<Vec<_>>()
        };
        assert!(next(&observing, Some(40), raised()).is_empty(), "computed, not written");
        assert_eq!(next(&Mode::Enforcing, Some(40), None), ["40 0.2 0.01"]);
        assert!(next(&Mode::Enforcing, Some(75), raised()).is_empty(), "raised, not begun");
        assert_eq!(next(&observing, Some(75), None), ["a drain is requested"]);
        assert!(next(&observing, None, ended()).is_empty());
        assert_eq!(next(&Mode::Enforcing, Some(75), raised()), ["75 0.2 0.01"]);
        assert_eq!(next(&Mode::Enforcing, None, ended()), ["not throttled"]);
        next(&Mode::Enforcing, Some(75), raised());
        assert_eq!(next(&observing, None, Some(BurstChange::Rejected)), ["app rejected"]);
        next(&Mode::Enforcing, Some(75), raised());
        // The container is removed: nothing is kept about it.
        assert!(next(&Mode::Enforcing, None, None).is_empty());
        assert!(bursts.chosen.is_empty());
    }
}
