//! CPU limits that burst: log lines, metrics, and Events.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use metrics::BurstMetrics;
use yielding::{BurstChange, BurstReport, Bursting, Mode};

use crate::colocation::{Seen, export_writes};
use crate::events::Burst;

/// Logs the changes of a pass.
pub(crate) fn log(seen: &mut Seen, report: &BurstReport) {
    if seen.is_new_mode(&report.mode) {
        match &report.mode {
            Mode::Enforcing => tracing::info!("CPU limits burst"),
            Mode::Observing(reason) => {
                tracing::info!(reason, "observing CPU burst; writing nothing");
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
                tracing::info!(namespace, pod, container, reason, "burst ended");
            }
            BurstChange::Scaled { percent } => tracing::info!(
                namespace,
                pod,
                container,
                percent_of_limit = percent,
                reason = "throttled",
                "quota scaled"
            ),
            BurstChange::Unscaled(reason) => {
                tracing::info!(namespace, pod, container, reason, "scaled quota ended");
            }
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
    /// The limits whose burst began or ended with a pass: without enforcement none bursts. A burst
    /// that is only raised has not begun again, and one of a removed container has no end.
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
                        changed.push(end(one, reason.replace('_', " ")));
                    }
                }
                BurstChange::Scaled { .. } | BurstChange::Unscaled(_) => {}
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
                Mode::Observing(reason) if was_written => changed.push(end(one, reason.clone())),
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

/// Minimum time between two Events about the start of a container's scaled quota: it may come and
/// go every few seconds with the use of the node.
const SCALED_EVERY: Duration = Duration::from_secs(600);

/// Scaled quotas, for Events.
#[derive(Debug, Default)]
pub(crate) struct ScaledQuotaEvents {
    /// By UID of the pod and name of the container.
    reported: HashMap<(String, String), Reported>,
}

/// The last Event about the start of a container's scaled quota.
#[derive(Debug)]
struct Reported {
    at: Instant,
    /// Whether its end has not been reported.
    in_force: bool,
}

impl ScaledQuotaEvents {
    /// The scaled quotas to report after a pass, with namespace, name and UID of the pod: without
    /// enforcement no quota is scaled. One that begins too soon after the last one is reported later
    /// if it lasts. One of a removed container has no end.
    pub(crate) fn next<'a>(
        &mut self,
        report: &'a BurstReport,
        now: Instant,
    ) -> Vec<([&'a str; 3], Burst<'a>)> {
        let mut changed = Vec::new();
        for (one, change) in &report.changes {
            let BurstChange::Unscaled(reason) = change else { continue };
            if self.end(&key(one)) {
                let (container, reason) = (&*one.container, end_of_scaling(reason).to_owned());
                let pod = [&*one.namespace, &*one.pod, &*one.uid];
                changed.push((pod, Burst::ScaledQuotaEnds { container, reason }));
            }
        }
        let mut lasting = HashSet::new();
        for one in &report.scaled {
            let key = (one.uid.clone(), one.container.clone());
            let (pod, container) = ([&*one.namespace, &*one.pod, &*one.uid], &*one.container);
            match &report.mode {
                Mode::Enforcing if self.is_due(&key, now) => {
                    self.reported.insert(key.clone(), Reported { at: now, in_force: true });
                    let percent = one.percent;
                    changed.push((pod, Burst::ScaledQuotaBegins { container, percent }));
                }
                Mode::Observing(reason) if self.end(&key) => {
                    let reason = reason.clone();
                    changed.push((pod, Burst::ScaledQuotaEnds { container, reason }));
                }
                Mode::Enforcing | Mode::Observing(_) => {}
            }
            lasting.insert(key);
        }
        self.reported.retain(|key, known| {
            known.in_force &= lasting.contains(key);
            known.in_force || now.saturating_duration_since(known.at) < SCALED_EVERY
        });
        changed
    }

    fn is_due(&self, key: &(String, String), now: Instant) -> bool {
        self.reported.get(key).is_none_or(|known| {
            !known.in_force && now.saturating_duration_since(known.at) >= SCALED_EVERY
        })
    }

    /// Returns whether an end is to be reported.
    fn end(&mut self, key: &(String, String)) -> bool {
        self.reported.get_mut(key).is_some_and(|known| std::mem::take(&mut known.in_force))
    }
}

/// Reason of the end of a scaled quota in words, by its label in metrics.
fn end_of_scaling(reason: &str) -> &str {
    match reason {
        "overload" => "too much of the node's CPU is in use",
        "no_tokens" => "its time above the limit is used up",
        "changed" => "the limit or the annotation has changed",
        "not_measured" => "its use is not measured",
        other => other,
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
    metrics.set_scaled_quotas(
        report.scaled.iter().map(|one| ([&*one.namespace, &*one.pod, &*one.container], one.cores)),
    );
    let counts = report.others.iter().map(|(&reason, &count)| (reason, count));
    let own = [("burst", report.containers.len()), ("scaled", report.scaled.len())];
    metrics.set_containers(counts.chain(own));
    for (_, change) in &report.changes {
        metrics.add_change(change.names());
    }
    export_writes(&report.writes, |setting, result, times| {
        metrics.add_writes(setting, result, times);
    });
}

#[cfg(test)]
mod tests {
    use yielding::ScaledContainer;

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
            scaled: Vec::new(),
            others: Default::default(),
            changes: change.into_iter().map(|change| (limit(0), change)).collect(),
            writes: Default::default(),
        }
    }

    #[test]
    fn a_written_burst_begins_and_ends_once() {
        let observing = Mode::Observing("a drain".to_owned());
        let raised = || Some(BurstChange::Raised { without: 0.2, with: 0.01 });
        let ended = || Some(BurstChange::Ended("not_throttled"));
        let mut bursts = Bursts::default();
        let mut next = |mode: &Mode, in_force, change| {
            let report = pass(mode, in_force, change);
            let of = |(_, burst)| match burst {
                Burst::Begins { percent, without, with, .. } => {
                    format!("{percent} {without} {with}")
                }
                Burst::Ends { reason, .. } => reason,
                other => panic!("{other:?}"),
            };
            bursts.next(&report).into_iter().map(of).collect::<Vec<_>>()
        };
        assert!(next(&observing, Some(40), raised()).is_empty(), "computed, not written");
        assert_eq!(next(&Mode::Enforcing, Some(40), None), ["40 0.2 0.01"]);
        assert!(next(&Mode::Enforcing, Some(75), raised()).is_empty(), "raised, not begun");
        assert_eq!(next(&observing, Some(75), None), ["a drain"]);
        assert!(next(&observing, None, ended()).is_empty());
        assert_eq!(next(&Mode::Enforcing, Some(75), raised()), ["75 0.2 0.01"]);
        assert_eq!(next(&Mode::Enforcing, None, ended()), ["not throttled"]);
        next(&Mode::Enforcing, Some(75), raised());
        // The container is removed: nothing is kept about it.
        assert!(next(&Mode::Enforcing, None, None).is_empty());
        assert!(bursts.chosen.is_empty());
    }

    #[test]
    fn a_scaled_quota_that_comes_and_goes_is_reported_at_most_every_ten_minutes() {
        let (mut quotas, start) = (ScaledQuotaEvents::default(), Instant::now());
        let observing = Mode::Observing("a drain".to_owned());
        let mut next = |second, mode: &Mode, percent: Option<u64>, ended: Option<&'static str>| {
            let scaled = |percent| ScaledContainer {
                namespace: "shop".to_owned(),
                pod: "cart-0".to_owned(),
                container: "app".to_owned(),
                uid: "u".to_owned(),
                percent,
                cores: 1.0,
            };
            let report = BurstReport {
                scaled: percent.map(scaled).into_iter().collect(),
                ..pass(mode, None, ended.map(BurstChange::Unscaled))
            };
            let of = |(pod, change)| match change {
                Burst::ScaledQuotaBegins { percent, .. } => format!("{pod:?} {percent}"),
                Burst::ScaledQuotaEnds { reason, .. } => reason,
                other => panic!("{other:?}"),
            };
            let now = start + Duration::from_secs(second);
            quotas.next(&report, now).into_iter().map(of).collect::<Vec<_>>().join(", ")
        };
        let (written, pod) = (&Mode::Enforcing, r#"["shop", "cart-0", "u"]"#);
        assert_eq!(next(0, &observing, Some(120), None), "", "computed, not written");
        assert_eq!(next(1, written, Some(120), None), format!("{pod} 120"));
        assert_eq!(next(2, written, Some(144), None), "");
        let ended = next(3, written, None, Some("overload"));
        assert_eq!(ended, "too much of the node's CPU is in use");
        assert_eq!(next(9, written, Some(120), None), "", "too soon");
        assert_eq!(next(15, written, None, Some("overload")), "", "its start was not reported");
        assert_eq!(next(600, written, Some(120), None), "");
        assert_eq!(next(601, written, Some(144), None), format!("{pod} 144"), "it lasts");
        assert_eq!(next(602, &observing, Some(144), None), "a drain");
        assert_eq!(next(603, &observing, None, Some("overload")), "");
        assert_eq!(next(1300, written, Some(120), None), format!("{pod} 120"));
        // The container is removed, and later nothing is kept about it.
        assert_eq!(next(1301, written, None, None), "");
        assert_eq!(next(1302, written, None, Some("overload")), "");
        assert_eq!(next(1900, written, None, None), "");
        assert!(quotas.reported.is_empty());
    }
}
