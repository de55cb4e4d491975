//! The smallest limit, the smallest burst and the request, from a history.

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::request::{REQUEST_AFTER_SECONDS, duration};

/// Share of throttled periods that is put up with.
pub const OBJECTIVE: f64 = 0.01;

/// A limit, with what stands behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitAdvice {
    /// Cores.
    pub cores: f64,
    /// Share of throttled periods that the replay found at it.
    pub throttled_share: f64,
    /// The most that this share can be: in some windows a quota throttled, or it is not known when the work came up.
    pub throttled_share_at_most: f64,
    /// At this limit more than the objective may be throttled, by `throttled_share_at_most`: a higher one may be needed.
    pub is_lower_bound: bool,
}

impl LimitAdvice {
    /// The label `bound` of the metric.
    #[must_use]
    pub fn bound(&self) -> &'static str {
        if self.is_lower_bound { "lower" } else { "exact" }
    }
}

/// What to set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuAdvice {
    /// Windows behind the limit and the burst, the last six hours at most.
    pub windows: usize,
    /// Seconds behind the request, the last day at most.
    pub watched_seconds: u64,
    /// The smallest limit under the objective; `None` while too little was seen, or no limit that is tried suffices.
    pub limit: Option<LimitAdvice>,
    /// The smallest `cpu.max.burst` at the limit in force, seconds; `None` when none is needed, or none suffices.
    pub burst_seconds: Option<f64>,
    /// Cores that 95 % of the windows do not pass.
    pub request_cores: Option<f64>,
    /// Cores that no window passed.
    pub most_cores: Option<f64>,
}

impl CpuAdvice {
    /// The advice under an objective, a share of throttled periods, once the container was watched for this long.
    #[must_use]
    pub fn from_history(history: &History, objective: f64, after_seconds: u64) -> Self {
        let seen = Self { windows: history.windows(), watched_seconds: history.watched_seconds(), ..Self::default() };
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

    /// Advice that is not given yet, and when it will be; `None` after a day of history.
    #[must_use]
    pub fn not_enough_history(&self, limits_after_seconds: u64) -> Option<String> {
        let watched = self.watched_seconds;
        let all = [("limits", limits_after_seconds), ("lower requests", REQUEST_AFTER_SECONDS)];
        let missing = all.into_iter().filter(|&(_, after)| watched < after);
        let missing: Vec<_> = missing.map(|(what, after)| format!("{what} from {}", duration(after))).collect();
        let (so_far, day) = (duration(watched), duration(REQUEST_AFTER_SECONDS));
        (!missing.is_empty()).then(|| format!("not enough history: {so_far} of {day}; {}", missing.join(", ")))
    }
}

fn smallest_limit(history: &History, objective: f64) -> Option<LimitAdvice> {
    let fits = |(cores, count): (f64, crate::Count)| {
        let (throttled_share, at_most) = (count.share()?, count.share_at_most()?);
        let is_lower_bound = at_most > objective;
        let advice = LimitAdvice { cores, throttled_share, throttled_share_at_most: at_most, is_lower_bound };
        (throttled_share <= objective).then_some(advice)
    };
    history.limits().find_map(fits)
}

/// Only where the limit in force has throttled.
fn smallest_burst(history: &History, objective: f64) -> Option<f64> {
    if history.throttled_windows() == 0 {
        return None;
    }
    history.bursts().find(|(_, count)| count.share().is_some_and(|share| share <= objective)).map(|(burst, _)| burst)
}
