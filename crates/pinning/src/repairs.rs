//! How often somebody else undoes what was written, and when that is too often to go on.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Within this time …
const WINDOW: Duration = Duration::from_secs(60);
/// … so many repairs of one cgroup, and so many failed transitions, are borne. A daemon-reload or a kubelet restart
/// rewrites every cgroup, in as many ticks as it takes, but each of them once.
const BORNE: usize = 5;

/// What was contested in the last minute.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    cgroups: BTreeMap<PathBuf, Times>,
    failures: Times,
}

#[derive(Debug, Default)]
struct Times(VecDeque<Instant>);

impl Repairs {
    /// Counts the cgroups that had to be repaired in a tick; true when that is too often for one of them.
    pub(crate) fn repaired(&mut self, cgroups: Vec<PathBuf>, now: Instant) -> bool {
        for cgroup in cgroups {
            self.cgroups.entry(cgroup).or_default().0.push_back(now);
        }
        self.cgroups.retain(|_, times| times.forget(now) > 0);
        self.cgroups.values().any(|times| times.0.len() > BORNE)
    }

    /// Counts a tick in which a write did not hold; true when that is too often.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.failures.0.push_back(now);
        self.failures.forget(now) > BORNE
    }
}

impl Times {
    /// Forgets the old ones; how many are left.
    fn forget(&mut self, now: Instant) -> usize {
        while self.0.front().is_some_and(|first| now.duration_since(*first) > WINDOW) {
            self.0.pop_front();
        }
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_in_a_minute_are_borne_and_more_are_not() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut repairs = Repairs::default();
        assert!((0..5).all(|second| !repairs.repaired(vec!["a".into()], at(second))));
        assert!((0..5).all(|second| !repairs.failed(at(second))));
        assert!(repairs.repaired(vec!["b".into(), "a".into()], at(5)));
        assert!(repairs.failed(at(5)));
    }

    #[test]
    fn old_ones_are_forgotten() {
        let start = Instant::now();
        let at = |n: u64| start + Duration::from_secs(13 * n);
        let mut repairs = Repairs::default();
        assert!((0..100).all(|n| !repairs.repaired(vec!["a".into()], at(n)) && !repairs.failed(at(n))));
    }

    #[test]
    fn each_cgroup_once_is_no_rival_however_many_there_are() {
        let mut repairs = Repairs::default();
        let now = Instant::now();
        assert!((0..50).all(|n| !repairs.repaired(vec![format!("pod{n}").into()], now)));
    }
}
