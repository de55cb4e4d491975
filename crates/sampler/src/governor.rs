//! Limits the agent's overhead: lengthens the interval if the CPU time of sampling exceeds a
//! budget.

use std::time::Duration;

use crate::timing::Timing;

/// The interval is shortened only if the cost would then be below this share of the budget, to
/// avoid oscillation.
const COMFORT: f64 = 0.5;

/// Decides on the interval between ticks.
#[derive(Debug)]
pub(crate) struct Governor {
    configured: Duration,
    interval: Duration,
    budget_cores: f64,
    /// Start of the measurement: (time since a fixed moment, CPU time in nanoseconds).
    began: Option<(Duration, u64)>,
}

/// A change of the interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct IntervalChange {
    pub(crate) interval: Duration,
    /// CPU use of sampling, cores.
    pub(crate) used_cores: f64,
}

impl Governor {
    pub(crate) fn new(configured: Duration, budget_cores: f64) -> Self {
        Self { configured, interval: configured, budget_cores, began: None }
    }

    /// The current interval.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// The reason why the interval differs from the configured one; empty if it does not.
    pub(crate) fn reason(&self) -> String {
        if self.interval <= self.configured {
            return String::new();
        }
        format!(
            "sampling exceeded its budget of {} cores: raise --cpu-budget or --sample-interval",
            self.budget_cores
        )
    }

    /// Records the CPU time of the sampler's thread so far, nanoseconds; `now` counts from any
    /// fixed moment.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        cpu_ns: u64,
        timing: &Timing,
    ) -> Option<IntervalChange> {
        let (began, cpu_then) = *self.began.get_or_insert((now, cpu_ns));
        let watched = now.saturating_sub(began);
        // Longer intervals need a longer measurement: one tick more or less must not decide.
        if watched < timing.cost_window.max(self.interval * 4) {
            return None;
        }
        self.began = Some((now, cpu_ns));
        let used_cores = cpu_ns.saturating_sub(cpu_then) as f64 / watched.as_nanos() as f64;
        let interval = self.judged(used_cores, timing);
        let changed = interval != self.interval;
        self.interval = interval;
        changed.then_some(IntervalChange { interval, used_cores })
    }

    fn judged(&self, used_cores: f64, timing: &Timing) -> Duration {
        if used_cores > self.budget_cores {
            return (self.interval * 2).min(timing.max_interval.max(self.configured));
        }
        // Half the interval costs at most twice as much.
        if self.interval > self.configured && used_cores * 2.0 < self.budget_cores * COMFORT {
            return (self.interval / 2).max(self.configured);
        }
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Feeds `seconds` of constant use and returns the decisions.
    fn run(governor: &mut Governor, from: u64, seconds: u64, cores: f64) -> Vec<Duration> {
        let ns = |second: u64| ((second - from) as f64 * cores * 1e9) as u64;
        governor.began = None;
        let timing = Timing::default();
        let changes = (from..=from + seconds)
            .filter_map(|second| governor.observe(SECOND * second as u32, ns(second), &timing));
        changes.map(|change| change.interval).collect()
    }

    #[test]
    fn within_the_budget_nothing_changes() {
        let mut governor = Governor::new(SECOND, 0.02);
        assert!(run(&mut governor, 0, 300, 0.019).is_empty());
        assert_eq!(governor.reason(), "");
    }

    #[test]
    fn above_the_budget_the_interval_doubles_up_to_a_minute() {
        let mut governor = Governor::new(SECOND, 0.02);
        assert_eq!(run(&mut governor, 0, 10, 0.05), [SECOND * 2]);
        assert!(governor.reason().contains("--cpu-budget"));
        let more = run(&mut governor, 10, 3000, 0.05);
        assert_eq!(more.last(), Some(&Timing::default().max_interval));
        assert_eq!(governor.interval(), Timing::default().max_interval);
    }

    #[test]
    fn the_interval_shrinks_again_with_headroom_and_does_not_flap() {
        let mut governor = Governor::new(SECOND, 0.02);
        run(&mut governor, 0, 10, 0.03);
        assert_eq!(governor.interval(), SECOND * 2);
        // Half the interval would cost 0.018 cores: within the budget, but above `COMFORT`.
        assert!(run(&mut governor, 10, 100, 0.009).is_empty());
        assert_eq!(run(&mut governor, 200, 10, 0.004), [SECOND]);
    }
}
