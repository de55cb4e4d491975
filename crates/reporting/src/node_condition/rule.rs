//! State of the condition, from readings of the node's contention. Pure.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::VecDeque;
use std::time::Duration;

/// Time over which the share is measured.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Share of the window from which on the condition is true.
pub(crate) const BEGINS: f64 = 0.10;
/// Share below which it is false again.
pub(crate) const ENDS: f64 = 0.05;

/// Value of a condition, as in the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reason of the condition: a word for programs.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::True => "PodsWaitForCPU",
            Self::False => "PodsGetCPU",
            Self::Unknown => "NotMeasured",
        }
    }
}

/// Status and the share of the window that led to it; `None` if it is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judgment {
    pub(crate) status: ConditionStatus,
    pub(crate) share: Option<f64>,
}

/// Readings of the last window, and the status after the last one.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Time, and wall time with contention so far, seconds.
    readings: VecDeque<(Duration, f64)>,
    status: ConditionStatus,
    /// Time since which there is no reading.
    silent_since: Duration,
}

impl Rule {
    pub(crate) fn new(now: Duration) -> Self {
        Self { readings: VecDeque::new(), status: ConditionStatus::Unknown, silent_since: now }
    }

    /// Adds the lower bound of the node's contention, seconds since the agent's start; `None` while
    /// it is not measured all the time. Returns `None` until there is enough to decide.
    pub(crate) fn read(&mut self, now: Duration, contention: Option<f64>) -> Option<Judgment> {
        let Some(contention) = contention else {
            self.readings.clear();
            self.status = ConditionStatus::Unknown;
            let is_known = now.saturating_sub(self.silent_since) >= WINDOW;
            return is_known.then_some(Judgment { status: ConditionStatus::Unknown, share: None });
        };
        self.silent_since = now;
        if self.readings.back().is_some_and(|&(_, before)| contention < before) {
            // The trace has started again.
            self.readings.clear();
        }
        self.readings.push_back((now, contention));
        // The first reading is the last one that is a window old.
        while self.readings.get(1).is_some_and(|&(at, _)| now.saturating_sub(at) >= WINDOW) {
            self.readings.pop_front();
        }
        let &(since, first) = self.readings.front()?;
        let length = now.saturating_sub(since);
        if length < WINDOW {
            return None;
        }
        let share = (contention - first) / length.as_secs_f64();
        self.status = match self.status {
            _ if share >= BEGINS => ConditionStatus::True,
            ConditionStatus::True if share >= ENDS => ConditionStatus::True,
            _ => ConditionStatus::False,
        };
        Some(Judgment { status: self.status, share: Some(share) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUND: u64 = 10;

    /// Statuses after rounds with these shares of contention; a negative share is not measured.
    fn statuses(shares: &[f64]) -> Vec<Option<ConditionStatus>> {
        let mut rule = Rule::new(Duration::ZERO);
        let mut contention = 0.0;
        let rounds = (1_u64..).zip(shares).map(|(round, &share)| {
            contention += share.max(0.0) * ROUND as f64;
            let value = (share >= 0.0).then_some(contention);
            rule.read(Duration::from_secs(round * ROUND), value).map(|judgment| judgment.status)
        });
        rounds.collect()
    }

    #[test]
    fn a_minute_decides_and_the_way_back_is_lower() {
        let busy = [vec![0.0; 7], vec![0.5; 2], vec![0.07; 8], vec![0.02; 8]].concat();
        let statuses = statuses(&busy);
        assert_eq!(statuses[..6], [None; 6], "less than a minute");
        assert_eq!(statuses[6], Some(ConditionStatus::False));
        // 5 of 60 s, then 10 of 60 s.
        assert_eq!(statuses[7..9], [Some(ConditionStatus::False), Some(ConditionStatus::True)]);
        assert_eq!(statuses[16], Some(ConditionStatus::True), "7 % is above the lower threshold");
        assert_eq!(statuses.last(), Some(&Some(ConditionStatus::False)));
    }

    #[test]
    fn without_a_measurement_for_a_minute_the_condition_is_unknown() {
        let statuses = statuses(&[vec![0.5; 8], vec![-1.0; 7], vec![0.5; 8]].concat());
        assert_eq!(statuses[7], Some(ConditionStatus::True));
        assert_eq!(statuses[8..13], [None; 5]);
        assert_eq!(statuses[13..15], [Some(ConditionStatus::Unknown); 2]);
        assert_eq!(statuses[15], None, "a new window");
        assert_eq!(statuses.last(), Some(&Some(ConditionStatus::True)));
    }

    #[test]
    fn a_counter_that_starts_again_starts_a_new_window() {
        let mut rule = Rule::new(Duration::ZERO);
        let mut read = |second, value| rule.read(Duration::from_secs(second), Some(value));
        for round in 0..=6 {
            read(round * ROUND, 100.0);
        }
        assert_eq!(read(70, 3.0), None);
        assert_eq!(read(130, 3.0).map(|judgment| judgment.status), Some(ConditionStatus::False));
    }

    /// Shares of a round next to the thresholds of the sum of six, and rounds without a measurement.
    fn restless() -> impl Strategy<Value = Vec<f64>> {
        let share = prop_oneof![
            Just(0.0),
            Just(0.02),
            Just(0.29),
            Just(0.3),
            Just(0.31),
            Just(0.6),
            Just(-1.0)
        ];
        prop::collection::vec(share, 7..200)
    }

    proptest! {
        /// The bound of the requests: a new status is one.
        #[test]
        fn the_status_changes_at_most_twice_a_minute(shares in restless()) {
            let known: Vec<_> = statuses(&shares);
            let mut last = None;
            let mut changes = Vec::new();
            for (round, status) in known.into_iter().enumerate() {
                if let Some(status) = status.filter(|status| last != Some(*status)) {
                    last = Some(status);
                    changes.push(round);
                }
            }
            let within = |first: usize| changes.iter().filter(|&&at| (first..first + 6).contains(&at)).count();
            for first in &changes {
                prop_assert!(within(*first) <= 3, "{changes:?}");
            }
            prop_assert!(changes.len() <= 2 * shares.len().div_ceil(6) + 1, "{changes:?}");
        }

        #[test]
        fn a_status_fits_the_share_of_the_last_minute(shares in prop::collection::vec(0.0..=1.0_f64, 7..40)) {
            for (round, status) in statuses(&shares).into_iter().enumerate().skip(6) {
                let share: f64 = shares[round - 5..=round].iter().sum::<f64>() / 6.0;
                let margin = 1e-9;
                if share > BEGINS + margin {
                    prop_assert_eq!(status, Some(ConditionStatus::True));
                }
                if share < ENDS - margin {
                    prop_assert_eq!(status, Some(ConditionStatus::False));
                }
                prop_assert!(status.is_some());
            }
        }
    }
}
