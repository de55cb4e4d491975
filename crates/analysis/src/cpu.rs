//! The smallest limit, the smallest burst and the request, from a history.

use serde::{Deserialize, Serialize};

use crate::history::History;

/// Share of throttled periods that is put up with.
pub const OBJECTIVE: f64 = 0.01;

/// A limit, with what stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitAdvice {
    /// Cores.
    pub cores: f64,
    /// Share of throttled periods that the replay found at it.
    pub throttled_share: f64,
    /// Throttling hid demand, or bursts inside a second could not be seen: the limit must be at least this.
    pub is_lower_bound: bool,
}

/// What to set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuAdvice {
    /// One-second windows behind it.
    pub windows: usize,
    /// The smallest limit under the objective; `None` while too little was seen, or no limit that is tried suffices.
    pub limit: Option<LimitAdvice>,
    /// The smallest `cpu.max.burst` at the limit in force, seconds; `None` when none is needed, or none suffices.
    pub burst_seconds: Option<f64>,
    /// Cores that 95 % of the windows do not pass.
    pub request_cores: Option<f64>,
}

impl CpuAdvice {
    /// The advice under an objective, a share of throttled periods, once there are enough windows.
    #[must_use]
    pub fn from_history(history: &History, objective: f64, fewest_windows: usize) -> Self {
        let windows = history.windows();
        if windows < fewest_windows {
            return Self { windows, ..Self::default() };
        }
        Self {
            windows,
            limit: smallest_limit(history, objective),
            burst_seconds: smallest_burst(history, objective),
            request_cores: history.use_quantile(0.95),
        }
    }
}

fn smallest_limit(history: &History, objective: f64) -> Option<LimitAdvice> {
    let is_lower_bound = history.censored_windows() + history.unshaped_windows() > 0;
    let fits = |(cores, count): (f64, crate::Count)| {
        let throttled_share = count.share()?;
        (throttled_share <= objective).then_some(LimitAdvice { cores, throttled_share, is_lower_bound })
    };
    history.limits().find_map(fits)
}

/// Only where the limit in force has throttled.
fn smallest_burst(history: &History, objective: f64) -> Option<f64> {
    if history.censored_windows() == 0 {
        return None;
    }
    history.bursts().find(|(_, count)| count.share().is_some_and(|share| share <= objective)).map(|(burst, _)| burst)
}
