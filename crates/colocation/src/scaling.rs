//! Quota scaling (koordlet's `cfsQuotaBurst`): a throttled container's quota grows in steps while
//! the node has CPU to spare, for as long as its token bucket lasts.

use std::time::Duration;

/// State of the pool that the containers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overload {
    /// CPU to spare: quotas may grow.
    Idle,
    /// Near the threshold: quotas stay.
    Cooling,
    /// Above the threshold: scaled quotas shrink.
    Overloaded,
}

/// State of a pool that uses `used_share` of its CPUs, against a threshold (koordlet: 0.5). The
/// cooling zone begins at nine tenths of the threshold. An unknown use counts as overload.
#[must_use]
pub fn overload(used_share: Option<f64>, threshold: f64) -> Overload {
    match used_share {
        Some(used) if used < threshold * 0.9 => Overload::Idle,
        Some(used) if used < threshold => Overload::Cooling,
        _ => Overload::Overloaded,
    }
}

/// Settings of one container's scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingSettings {
    /// Highest quota, percent of the limit.
    pub most_percent: u64,
    /// Time for which the highest quota may last; `None` for any time.
    pub period: Option<Duration>,
}

/// Change of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    /// The quota stays.
    Keep,
    /// The quota grows to this value, microseconds.
    Up(u64),
    /// The quota shrinks to this value, microseconds.
    Down(u64),
}

/// Factors of one step.
const UP: f64 = 1.2;
const DOWN: f64 = 0.8;

/// Use above the limit consumes tokens; use below this share of it saves them.
const SAVES_BELOW: f64 = 0.6;

/// Scales one container's quota. Tokens are limit-seconds: one second of use at twice the limit
/// costs one.
#[derive(Debug, Clone)]
pub struct QuotaScaler {
    settings: ScalingSettings,
    tokens: f64,
}

impl QuotaScaler {
    /// Creates a scaler with a bucket that is filled to `filled` (0 to 1). koordlet starts between
    /// 0 and 0.5 at random, so that the pods of a restarted agent do not scale in step.
    #[must_use]
    pub fn new(settings: ScalingSettings, filled: f64) -> Self {
        let mut scaler = Self { settings, tokens: 0.0 };
        scaler.tokens = scaler.capacity().unwrap_or_default() * filled.clamp(0.0, 1.0);
        scaler
    }

    /// Size of the bucket, limit-seconds; `None` if it is not limited.
    fn capacity(&self) -> Option<f64> {
        let above = self.settings.most_percent.saturating_sub(100) as f64 / 100.0;
        self.settings.period.map(|period| period.as_secs_f64() * above)
    }

    /// Takes one interval: `used` is the container's use over its limit. Returns the change of
    /// `current_usec`, which stays between `base_usec` (the limit) and the highest quota.
    pub fn tick(
        &mut self,
        elapsed: Duration,
        used: f64,
        throttled: bool,
        overload: Overload,
        base_usec: u64,
        current_usec: u64,
    ) -> Scaling {
        let may_burst = self.spend(elapsed, used);
        let most = (u128::from(base_usec) * u128::from(self.settings.most_percent.max(100)) / 100)
            .try_into()
            .unwrap_or(u64::MAX);
        let scaled = |factor: f64| ((current_usec as f64 * factor) as u64).clamp(base_usec, most);
        let wanted = match overload {
            _ if !may_burst => base_usec.max(scaled(DOWN)),
            Overload::Overloaded => scaled(DOWN),
            Overload::Idle if throttled => scaled(UP),
            Overload::Idle | Overload::Cooling => current_usec.clamp(base_usec, most),
        };
        match wanted.cmp(&current_usec) {
            std::cmp::Ordering::Greater => Scaling::Up(wanted),
            std::cmp::Ordering::Less => Scaling::Down(wanted),
            std::cmp::Ordering::Equal => Scaling::Keep,
        }
    }

    /// Updates the bucket; returns whether it has tokens.
    fn spend(&mut self, elapsed: Duration, used: f64) -> bool {
        let Some(capacity) = self.capacity() else { return true };
        let used = if used.is_finite() { used.max(0.0) } else { 1.0 };
        let seconds = elapsed.as_secs_f64();
        if used >= 1.0 {
            self.tokens -= (used - 1.0) * seconds;
        } else if used < SAVES_BELOW {
            self.tokens += (1.0 - used) * seconds;
        }
        self.tokens = self.tokens.clamp(0.0, capacity);
        self.tokens > 0.0
    }
}
