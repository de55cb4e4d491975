//! CPU advice from a history: the smallest limit, the smallest burst and the request.

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::request::{REQUEST_AFTER_SECONDS, duration};

/// Acceptable share of throttled periods.
pub const OBJECTIVE: f64 = 0.01;

/// An advised limit with its evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitAdvice {
    /// Limit, cores.
    pub cores: f64,
    /// Share of throttled periods that the replay found at this limit.
    pub throttled_share: f64,
    /// Upper bound of this share: some windows were throttled, or their arrival times are unknown.
    pub throttled_share_at_most: f64,
    /// Whether more than the objective may be throttled at this limit, by
    /// `throttled_share_at_most`: it may be too low.
    pub is_lower_bound: bool,
}

impl LimitAdvice {
    /// Value of the metric's label `bound`.
    #[must_use]
    pub fn bound(&self) -> &'static str {
        if self.is_lower_bound { "lower" } else { "exact" }
    }
}

/// CPU advice for one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuAdvice {
    /// Number of windows behind the limit and the burst, at most the last six hours.
    pub windows: usize,
    /// Seconds behind the request, at most the last day.
    pub watched_seconds: u64,
    /// The smallest limit that meets the objective; `None` with too little history, or if no
    /// candidate suffices.
    pub limit: Option<LimitAdvice>,
    /// The smallest `cpu.max.burst` at the current limit, seconds; `None` if no burst is needed, or
    /// if none prevents the throttling.
    pub burst_seconds: Option<f64>,
    /// 95th percentile of use, cores.
    pub request_cores: Option<f64>,
    /// Use that no window exceeded, cores.
    pub most_cores: Option<f64>,
}

impl CpuAdvice {
    /// Computes the advice for an objective (share of throttled periods) after `after_seconds` of
    /// history.
    #[must_use]
    pub fn from_history(history: &History, objective: f64, after_seconds: u64) -> Self {
        let seen = Self {
            windows: history.windows(),
            watched_seconds: history.watched_seconds(),
            ..Self::default()
        };
        if history.replayed_seconds() < after_seconds {
            return seen;
        }
        Self {
            limit: smallest_limit(history, objective),
            burst_seconds: smallest_burst(history, objective),
            request_cores: history.usage().quantile(0.95),
            most_cores: history.usage().quantile(1.0),
            ..seen
        }
    }

    /// The advice that still lacks history, and when it will be available; `None` after a day of
    /// history.
    #[must_use]
    pub fn not_enough_history(&self, limits_after_seconds: u64) -> Option<String> {
        let watched = self.watched_seconds;
        let all = [("limits", limits_after_seconds), ("lower requests", REQUEST_AFTER_SECONDS)];
        let missing = all.into_iter().filter(|&(_, after)| watched < after);
        let missing: Vec<_> =
            missing.map(|(what, after)| format!("{what} from {}", duration(after))).collect();
        let (so_far, day) = (duration(watched), duration(REQUEST_AFTER_SECONDS));
        (!missing.is_empty())
            .then(|| format!("not enough history: {so_far} of {day}; {}", missing.join(", ")))
    }
}

fn smallest_limit(history: &History, objective: f64) -> Option<LimitAdvice> {
    let fits = |(cores, count): (f64, crate::Count)| {
        let (throttled_share, at_most) = (count.share()?, count.share_at_most()?);
        let is_lower_bound = at_most > objective;
        let advice = LimitAdvice {
            cores,
            throttled_share,
            throttled_share_at_most: at_most,
            is_lower_bound,
        };
        (throttled_share <= objective).then_some(advice)
    };
    history.limits().find_map(fits)
}

/// The smallest burst that meets the objective; `None` unless the current limit has throttled.
fn smallest_burst(history: &History, objective: f64) -> Option<f64> {
    if history.throttled_windows() == 0 {
        return None;
    }
    history
        .bursts()
        .filter(|&(burst, _)| burst > 0.0)
        .find(|(_, count)| count.share().is_some_and(|share| share <= objective))
        .map(|(burst, _)| burst)
}
