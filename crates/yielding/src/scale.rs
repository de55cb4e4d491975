//! Scaled quotas: koordlet's `cfsQuotaBurst` for the containers whose pods request it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use analysis::may_be_throttled_by_ancestor;
use colocation::{Overload, PodBurst, QuotaScaler, Scaling as Step, ScalingSettings, overload};
use snapshot::ContainerRow;

use crate::setting::QuotaSetting;

/// Use of the shared CPUs above which scaled quotas shrink, as in koordlet.
const THRESHOLD: f64 = 0.5;

/// Time constant of the use.
const SMOOTHING: Duration = Duration::from_secs(5);

/// Time without a measurement of the use after which it counts as unknown.
const UNKNOWN_AFTER: Duration = Duration::from_secs(10);

/// Reason of an end: the limit or the request changes, or the container may not be scaled any more.
const CHANGED: &str = "changed";

/// Age of a snapshot above which no quota is scaled: more than the longest interval of the sampler.
const STALE_AFTER: Duration = Duration::from_secs(180);

/// Minimum time between two steps, less the tolerance of a tick.
const STEP: Duration = Duration::from_millis(900);

/// A container whose quota may be scaled.
pub(crate) struct Scalable {
    id: String,
    settings: ScalingSettings,
    path: PathBuf,
    base: QuotaSetting,
    used_ns: u64,
    throttling: Throttling,
}

/// Counters of throttling. While the quotas of a container and of its pod are equal, they run out
/// together, and the kernel may count only the pod's: its periods begin at other times.
#[derive(Debug, Clone, Copy)]
struct Throttling {
    /// Throttled periods by the container's own quota.
    periods: u64,
    /// Time throttled by the quotas above it, nanoseconds.
    ancestor_ns: u64,
}

impl Throttling {
    fn of(row: &ContainerRow) -> Self {
        Self {
            periods: row.cfs.map_or(0, |cfs| cfs.throttled_periods),
            ancestor_ns: row.throttled_ancestor_ns.unwrap_or(0),
        }
    }

    /// Whether the container was throttled since `before`, while it used this CPU time.
    fn has_grown_since(self, before: Self, used_ns: u64) -> bool {
        let ancestor_ns = self.ancestor_ns.saturating_sub(before.ancestor_ns);
        self.periods > before.periods
            || ancestor_ns > 0 && may_be_throttled_by_ancestor(ancestor_ns, used_ns)
    }
}

impl Scalable {
    pub(crate) fn of(
        row: &ContainerRow,
        request: &PodBurst,
        most_percent: u64,
        path: PathBuf,
        base: QuotaSetting,
    ) -> Self {
        let period = u64::try_from(request.cfs_quota_burst_period_seconds).ok();
        Self {
            id: row.identity.container_id.clone(),
            settings: ScalingSettings {
                most_percent: request.cfs_quota_burst_percent.min(most_percent),
                period: period.map(Duration::from_secs),
            },
            path,
            base,
            used_ns: row.usage_ns.unwrap_or_default(),
            throttling: Throttling::of(row),
        }
    }

    fn limit_cores(&self) -> f64 {
        self.base.quota.unwrap_or_default() as f64 / self.base.period as f64
    }
}

/// State of one container.
#[derive(Debug)]
struct Scaled {
    scaler: QuotaScaler,
    settings: ScalingSettings,
    /// Quota by the limit, microseconds.
    base: u64,
    /// Quota in force, microseconds.
    quota: u64,
    used_ns: u64,
    throttling: Throttling,
    /// Reason of the last step down.
    reason: &'static str,
}

/// Start or end of a container's scaled quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleChange {
    /// The quota is above the limit now; percent of the limit.
    Began(u64),
    /// The quota is the limit again, for this reason.
    Ended(&'static str),
}

/// A container with a quota above its limit.
#[derive(Debug)]
pub(crate) struct ScaledQuota {
    /// The runtime's id of the container.
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    /// Quota by the limit.
    pub(crate) base: QuotaSetting,
    /// Quota, microseconds.
    pub(crate) quota: u64,
}

impl ScaledQuota {
    /// Quota, percent of the limit.
    pub(crate) fn percent(&self) -> u64 {
        percent(self.quota, self.base.quota.unwrap_or_default())
    }
}

fn percent(quota: u64, base: u64) -> u64 {
    quota.saturating_mul(100) / base.max(1)
}

/// Decisions of one pass.
#[derive(Debug, Default)]
pub(crate) struct ScalePass {
    pub(crate) quotas: Vec<ScaledQuota>,
    /// Changes by the runtime's id of the container, which may have been removed.
    pub(crate) changes: Vec<(String, ScaleChange)>,
}

/// State of all scaled containers.
#[derive(Debug, Default)]
pub(crate) struct Scaling {
    containers: HashMap<String, Scaled>,
    /// Share of the shared CPUs in use, smoothed.
    used_share: Option<f64>,
    measured_at: Option<Instant>,
    /// Time of the snapshot of the last step.
    stepped_at: Option<Instant>,
}

/// Times of a pass, and what it measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) now: Instant,
    /// Time of the snapshot.
    pub(crate) read_at: Instant,
    /// Share of the shared CPUs in use; `None` without a new measurement.
    pub(crate) used_share: Option<f64>,
}

impl Scaling {
    /// Decides the quotas of one pass. Steps follow the times of snapshots, which may be rarer than
    /// passes.
    pub(crate) fn tick(&mut self, scalable: Vec<Scalable>, measured: Measured) -> ScalePass {
        let Measured { now, read_at, .. } = measured;
        let scaled = self.containers.iter().filter(|(_, state)| state.quota > state.base);
        let were_scaled: Vec<String> = scaled.map(|(id, _)| id.clone()).collect();
        if now.saturating_duration_since(read_at) > STALE_AFTER {
            *self = Self::default();
            let ended = |id| (id, ScaleChange::Ended("not_measured"));
            let changes = were_scaled.into_iter().map(ended).collect();
            return ScalePass { quotas: Vec::new(), changes };
        }
        let elapsed =
            self.stepped_at.map_or(Duration::ZERO, |at| read_at.saturating_duration_since(at));
        let is_due = self.stepped_at.is_none() || elapsed >= STEP;
        if is_due {
            self.stepped_at = Some(read_at);
            self.follow(measured, elapsed);
        }
        let mut before = std::mem::take(&mut self.containers);
        let mut decided = ScalePass::default();
        for one in scalable {
            let Some(base) = one.base.quota else { continue };
            let known = before.remove(&one.id).filter(|known| known.settings == one.settings);
            let mut state = known.unwrap_or_else(|| Scaled {
                scaler: QuotaScaler::new(one.settings, filled(&one.id)),
                settings: one.settings,
                base,
                quota: base,
                used_ns: one.used_ns,
                throttling: one.throttling,
                reason: CHANGED,
            });
            state.base = base;
            if is_due && !elapsed.is_zero() {
                state.step(&one, base, elapsed, self.used_share);
            }
            match (were_scaled.contains(&one.id), state.quota > base) {
                (false, true) => {
                    let began = ScaleChange::Began(percent(state.quota, base));
                    decided.changes.push((one.id.clone(), began));
                }
                (true, false) => {
                    decided.changes.push((one.id.clone(), ScaleChange::Ended(state.reason)));
                }
                _ => {}
            }
            if state.quota > base {
                let id = one.id.clone();
                let (path, base, quota) = (one.path, one.base, state.quota);
                decided.quotas.push(ScaledQuota { id, path, base, quota });
            }
            self.containers.insert(one.id, state);
        }
        let gone = were_scaled.into_iter().filter(|id| !self.containers.contains_key(id));
        decided.changes.extend(gone.map(|id| (id, ScaleChange::Ended(CHANGED))));
        decided
    }

    fn follow(&mut self, measured: Measured, elapsed: Duration) {
        let Measured { read_at, used_share, .. } = measured;
        let Some(share) = used_share else {
            let silent = |at: Instant| read_at.saturating_duration_since(at) >= UNKNOWN_AFTER;
            // Unknown counts as overload.
            self.used_share = self.used_share.filter(|_| !self.measured_at.is_some_and(silent));
            return;
        };
        let weight = (elapsed.as_secs_f64() / SMOOTHING.as_secs_f64()).min(1.0);
        self.measured_at = Some(read_at);
        self.used_share = match self.used_share {
            Some(before) => Some(before + (share - before) * weight),
            None => Some(share),
        };
    }
}

impl Scaled {
    fn step(&mut self, now: &Scalable, base: u64, elapsed: Duration, used_share: Option<f64>) {
        let used_ns = now.used_ns.saturating_sub(std::mem::replace(&mut self.used_ns, now.used_ns));
        let cores = used_ns as f64 / elapsed.as_nanos() as f64;
        let before = std::mem::replace(&mut self.throttling, now.throttling);
        let throttled = now.throttling.has_grown_since(before, used_ns);
        let used = cores / now.limit_cores();
        let pool = overload(used_share, THRESHOLD);
        match self.scaler.tick(elapsed, used, throttled, pool, base, self.quota) {
            Step::Keep => {}
            Step::Up(quota) => self.quota = quota,
            Step::Down(quota) => {
                self.quota = quota;
                self.reason = if pool == Overload::Overloaded { "overload" } else { "no_tokens" };
            }
        }
    }
}

/// Fill of a new bucket, 0 to 0.5, as in koordlet; by the container's id, so that the containers of
/// a restarted agent do not scale in step.
fn filled(id: &str) -> f64 {
    let sum = id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    f64::from(sum % 1000) / 2000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A throttled container with a limit of one core that uses all of it.
    fn scalable(second: u64) -> Scalable {
        Scalable {
            id: "app".to_owned(),
            settings: ScalingSettings { most_percent: 200, period: Some(Duration::from_secs(1)) },
            path: "pod/app".into(),
            base: QuotaSetting { quota: Some(100_000), period: 100_000 },
            used_ns: second * 1_000_000_000,
            throttling: Throttling { periods: second, ancestor_ns: 0 },
        }
    }

    /// Quota after each pass, from its second, the one of its snapshot, and the measured use.
    fn quotas(passes: &[(u64, u64, Option<f64>)]) -> Vec<u64> {
        let (mut scaling, start) = (Scaling::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let pass = |&(second, of_snapshot, used_share): &(u64, u64, Option<f64>)| {
            let measured = Measured { now: at(second), read_at: at(of_snapshot), used_share };
            let scaled = scaling.tick(vec![scalable(of_snapshot)], measured);
            scaled.quotas.first().map_or(100_000, |one| one.quota)
        };
        passes.iter().map(pass).collect()
    }

    #[test]
    fn only_a_new_snapshot_is_a_step() {
        let passes = [
            (0, 0, Some(0.1)),
            (1, 0, None),
            (2, 0, None),
            (4, 4, Some(0.1)),
            (5, 4, None),
            (6, 4, None),
            (8, 8, Some(0.1)),
        ];
        assert_eq!(
            quotas(&passes),
            [100_000, 100_000, 100_000, 120_000, 120_000, 120_000, 144_000]
        );
    }

    #[test]
    fn a_quota_grows_if_only_the_pods_equal_quota_throttles() {
        let (mut scaling, read_at) = (Scaling::default(), Instant::now());
        let mut quota = |second, ancestor_ns| {
            let throttling = Throttling { periods: 7, ancestor_ns };
            let container = Scalable { throttling, ..scalable(second) };
            let read_at = read_at + Duration::from_secs(second);
            let measured = Measured { now: read_at, read_at, used_share: Some(0.1) };
            scaling.tick(vec![container], measured).quotas.first().map(|one| one.quota)
        };
        assert_eq!(quota(0, 500), None, "the counter's past");
        assert_eq!(quota(1, 500), None, "not throttled");
        assert_eq!(quota(2, 501), Some(120_000));
        assert_eq!(quota(3, 501), Some(120_000), "not throttled any more");
    }

    #[test]
    fn an_idle_container_has_no_part_in_the_throttling_of_its_pod() {
        let (mut scaling, start) = (Scaling::default(), Instant::now());
        for second in 0..3 {
            let throttling = Throttling { periods: 0, ancestor_ns: second * 500_000_000 };
            let idle = Scalable { throttling, used_ns: second * 2_000_000, ..scalable(second) };
            let read_at = start + Duration::from_secs(second);
            let measured = Measured { now: read_at, read_at, used_share: Some(0.1) };
            assert!(scaling.tick(vec![idle], measured).quotas.is_empty(), "second {second}");
        }
    }

    #[test]
    fn an_unmeasured_use_counts_as_overload_after_ten_seconds() {
        let passes = [(0, 0, Some(0.1)), (1, 1, None), (9, 9, None), (10, 10, None)];
        assert_eq!(quotas(&passes), [100_000, 120_000, 144_000, 115_200]);
    }

    #[test]
    fn old_measurements_end_the_scaling() {
        let passes = [(0, 0, Some(0.1)), (1, 1, Some(0.1)), (181, 1, None), (182, 1, None)];
        assert_eq!(quotas(&passes), [100_000, 120_000, 120_000, 100_000]);
    }

    #[test]
    fn a_scaled_quota_begins_and_ends_with_a_reason() {
        let (mut scaling, start) = (Scaling::default(), Instant::now());
        let mut changes = |second, used_share, all: Vec<Scalable>| {
            let read_at = start + Duration::from_secs(second);
            let used_share = Some(used_share);
            let decided = scaling.tick(all, Measured { now: read_at, read_at, used_share });
            decided.changes.into_iter().map(|(_, change)| change).collect::<Vec<_>>()
        };
        assert_eq!(changes(0, 0.1, vec![scalable(0)]), []);
        assert_eq!(changes(1, 0.1, vec![scalable(1)]), [ScaleChange::Began(120)]);
        assert_eq!(changes(2, 0.1, vec![scalable(2)]), [], "only grows");
        assert_eq!(changes(12, 0.9, vec![scalable(12)]), [], "115 %");
        assert_eq!(changes(13, 0.9, vec![scalable(13)]), [ScaleChange::Ended("overload")]);
        assert_eq!(changes(23, 0.1, vec![scalable(23)]), [ScaleChange::Began(120)]);
        // Twice the limit for longer than the tokens last.
        let busy = |second| Scalable { used_ns: 90_000_000_000 + second, ..scalable(second) };
        assert_eq!(changes(33, 0.1, vec![busy(33)]), [ScaleChange::Ended("no_tokens")]);
        assert_eq!(changes(34, 0.1, Vec::new()), []);
        assert_eq!(changes(35, 0.1, vec![scalable(35)]), []);
        assert_eq!(changes(36, 0.1, vec![scalable(36)]), [ScaleChange::Began(120)]);
        assert_eq!(changes(37, 0.1, Vec::new()), [ScaleChange::Ended("changed")]);
    }
}
