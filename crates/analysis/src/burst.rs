//! Forecast of CPU burst: what the replay says about the current limit with and without it.

use std::collections::HashMap;

use crate::history::History;

/// Minimum number of replayed periods: five busy seconds with the period of Kubernetes.
const MIN_PERIODS: u32 = 50;

/// Forecasts by the labels of the container's series.
pub type BurstForecasts = HashMap<Box<str>, BurstForecast>;

/// Measurements and replay of one container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BurstForecast {
    /// Share of throttled periods of its own cgroup, by the kernel's counters; `None` without
    /// periods.
    pub throttled_share: Option<f64>,
    /// Mean use over its own limit; `None` without a limit.
    pub mean_use: Option<f64>,
    /// Replayed shares of throttled periods, as (burst as a share of the quota, share), ascending
    /// from 0, which is the limit without burst. Empty with too little history.
    pub replayed: Vec<(f64, f64)>,
}

impl BurstForecast {
    /// Replayed shares of throttled periods, for [`BurstForecast::replayed`], after `after_seconds`
    /// of history.
    #[must_use]
    pub fn replay(history: &History, after_seconds: u64) -> Vec<(f64, f64)> {
        if history.replayed_seconds() < after_seconds {
            return Vec::new();
        }
        let enough = history.burst_shares().filter(|(_, count)| count.periods >= MIN_PERIODS);
        enough.filter_map(|(burst, count)| Some((burst, count.share()?))).collect()
    }

    /// Replayed share of throttled periods with this burst, a share of the quota: that of the
    /// largest replayed burst which is not larger.
    #[must_use]
    pub fn with(&self, burst: f64) -> Option<f64> {
        let fitting = self.replayed.iter().rev().find(|(replayed, _)| *replayed <= burst);
        fitting.map(|&(_, share)| share)
    }

    /// The smallest replayed burst, up to `most`, with which at most `objective` of the periods are
    /// throttled; otherwise the one with the fewest.
    #[must_use]
    pub fn best(&self, most: f64, objective: f64) -> Option<f64> {
        let bursts = || self.replayed.iter().filter(|(burst, _)| *burst > 0.0 && *burst <= most);
        let least = || bursts().min_by(|a, b| a.1.total_cmp(&b.1));
        let found = bursts().find(|(_, share)| *share <= objective).or_else(least);
        found.map(|&(burst, _)| burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_burst_that_suffices_is_the_best() {
        let replayed = vec![(0.0, 0.4), (0.25, 0.2), (0.5, 0.005), (0.75, 0.0)];
        let forecast = BurstForecast { replayed, ..BurstForecast::default() };
        assert_eq!(forecast.best(0.75, 0.01), Some(0.5));
        assert_eq!(forecast.best(0.3, 0.01), Some(0.25), "the most that is allowed");
        assert_eq!(forecast.best(0.1, 0.01), None);
        assert_eq!((forecast.with(0.0), forecast.with(0.6)), (Some(0.4), Some(0.005)));
    }

    #[test]
    fn without_gain_the_smallest_burst_is_as_good_as_any() {
        let replayed = vec![(0.0, 1.0), (0.25, 1.0), (0.5, 1.0)];
        let forecast = BurstForecast { replayed, ..BurstForecast::default() };
        assert_eq!(forecast.best(0.75, 0.01), Some(0.25));
    }
}
