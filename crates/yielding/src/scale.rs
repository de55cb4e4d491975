//! Scaled quotas: koordlet's `cfsQuotaBurst` for the containers whose pods request it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use colocation::{NodeUsage, PodBurst, QuotaScaler, Scaling as Step, ScalingSettings, overload};
use snapshot::ContainerRow;

use crate::setting::Bandwidth;

/// Use of the node above which scaled quotas shrink, as in koordlet.
const THRESHOLD: f64 = 0.5;

/// Time constant of the node's use.
const SMOOTHING: Duration = Duration::from_secs(5);

/// Minimum time between two steps, less the tolerance of a tick.
const STEP: Duration = Duration::from_millis(900);

/// A container whose quota may be scaled.
pub(crate) struct Scalable {
    id: String,
    settings: ScalingSettings,
    path: PathBuf,
    base: Bandwidth,
    used_ns: u64,
    throttled: u64,
}

impl Scalable {
    pub(crate) fn of(
        row: &ContainerRow,
        request: &PodBurst,
        most_percent: u64,
        path: PathBuf,
        base: Bandwidth,
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
            throttled: row.cfs.map_or(0, |cfs| cfs.throttled_periods),
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
    /// Quota in force, microseconds.
    quota: u64,
    used_ns: u64,
    throttled: u64,
}

/// State of all scaled containers.
#[derive(Debug, Default)]
pub(crate) struct Scaling {
    containers: HashMap<String, Scaled>,
    /// Share of the node's CPUs in use, smoothed.
    used_share: Option<f64>,
    stepped_at: Option<Instant>,
}

impl Scaling {
    /// Decides the quotas of one pass. Returns the containers with a quota above their limit: path,
    /// bandwidth by the limit, and quota, microseconds.
    pub(crate) fn tick(
        &mut self,
        scalable: Vec<Scalable>,
        now: Instant,
        usage: Option<&NodeUsage>,
    ) -> Vec<(PathBuf, Bandwidth, u64)> {
        let elapsed =
            self.stepped_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let is_due = self.stepped_at.is_none() || elapsed >= STEP;
        if is_due {
            self.stepped_at = Some(now);
            self.follow(usage, elapsed);
        }
        let mut before = std::mem::take(&mut self.containers);
        let mut scaled = Vec::new();
        for one in scalable {
            let Some(base) = one.base.quota else { continue };
            let known = before.remove(&one.id).filter(|known| known.settings == one.settings);
            let mut state = known.unwrap_or_else(|| Scaled {
                scaler: QuotaScaler::new(one.settings, filled(&one.id)),
                settings: one.settings,
                quota: base,
                used_ns: one.used_ns,
                throttled: one.throttled,
            });
            if is_due && !elapsed.is_zero() {
                state.step(&one, base, elapsed, self.used_share);
            }
            if state.quota > base {
                scaled.push((one.path, one.base, state.quota));
            }
            self.containers.insert(one.id, state);
        }
        scaled
    }

    fn follow(&mut self, usage: Option<&NodeUsage>, elapsed: Duration) {
        let share = usage.filter(|usage| usage.capacity > 0.0);
        let share = share.map(|usage| usage.node / usage.capacity);
        let weight = (elapsed.as_secs_f64() / SMOOTHING.as_secs_f64()).min(1.0);
        self.used_share = match (self.used_share, share) {
            (Some(before), Some(now)) => Some(before + (now - before) * weight),
            // Unknown counts as overload.
            (_, now) => now,
        };
    }
}

impl Scaled {
    fn step(&mut self, now: &Scalable, base: u64, elapsed: Duration, used_share: Option<f64>) {
        let used_ns = now.used_ns.saturating_sub(std::mem::replace(&mut self.used_ns, now.used_ns));
        let cores = used_ns as f64 / elapsed.as_nanos() as f64;
        let throttled = std::mem::replace(&mut self.throttled, now.throttled) < now.throttled;
        let used = cores / now.limit_cores();
        let pool = overload(used_share, THRESHOLD);
        match self.scaler.tick(elapsed, used, throttled, pool, base, self.quota) {
            Step::Keep => {}
            Step::Up(quota) | Step::Down(quota) => self.quota = quota,
        }
    }
}

/// Fill of a new bucket, 0 to 0.5, as in koordlet; by the container's id, so that the containers of
/// a restarted agent do not scale in step.
fn filled(id: &str) -> f64 {
    let sum = id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    f64::from(sum % 1000) / 2000.0
}
