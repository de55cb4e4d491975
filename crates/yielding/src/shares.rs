//! The quota of each best-effort pod: the division of the budget by the pods' measured use.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::rules::share_cores;

/// The highest use within this time counts, so that a probe every few seconds does not change the
/// quotas each time.
const WINDOW: Duration = Duration::from_secs(10);

/// A share in force stays unless it grows by more than this factor. It shrinks at once.
const MIN_GROWTH: f64 = 1.1;

/// Use and shares by pod cgroup.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Use of the last [`WINDOW`], or the last one measured, cores.
    used: HashMap<PathBuf, VecDeque<(Instant, f64)>>,
    /// Shares in force, cores.
    in_force: HashMap<PathBuf, f64>,
}

impl Shares {
    /// Takes the use of pods, cores; empty if it was not measured.
    pub(crate) fn note<'a>(
        &mut self,
        now: Instant,
        pods: impl Iterator<Item = &'a PathBuf>,
        used: &HashMap<PathBuf, f64>,
    ) {
        let mut before = std::mem::take(&mut self.used);
        for pod in pods {
            let mut samples = before.remove(pod).unwrap_or_default();
            samples.extend(used.get(pod).map(|&cores| (now, cores)));
            let is_old = |at: Instant| now.saturating_duration_since(at) > WINDOW;
            while samples.len() > 1 && is_old(samples[0].0) {
                samples.pop_front();
            }
            self.used.insert(pod.clone(), samples);
        }
    }

    /// Divides a budget over the noted pods; without a budget there are no shares.
    pub(crate) fn divide(&mut self, budget: Option<f64>) -> BTreeMap<&Path, f64> {
        let before = std::mem::take(&mut self.in_force);
        let Some(budget) = budget else { return BTreeMap::new() };
        let pods: Vec<&PathBuf> = self.used.keys().collect();
        let highest =
            |pod: &&PathBuf| self.used[*pod].iter().map(|&(_, cores)| cores).reduce(f64::max);
        let shares = share_cores(budget, &pods.iter().map(highest).collect::<Vec<_>>());
        for (&pod, share) in pods.iter().zip(shares) {
            let stays = before.get(pod).filter(|&&old| (old..=old * MIN_GROWTH).contains(&share));
            self.in_force.insert(pod.clone(), stays.copied().unwrap_or(share));
        }
        self.in_force.iter().map(|(pod, &share)| (pod.as_path(), share)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of two pods at each second, by their use.
    fn shares(budget: f64, seconds: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let (mut shares, start) = (Shares::default(), Instant::now());
        let pods = [PathBuf::from("a"), PathBuf::from("b")];
        let second = |(second, used): (usize, &[f64; 2])| {
            let now = start + Duration::from_secs(second as u64);
            let used = pods.iter().cloned().zip(*used).collect();
            shares.note(now, pods.iter(), &used);
            let divided = shares.divide(Some(budget));
            [divided[&*pods[0]], divided[&*pods[1]]]
        };
        seconds.iter().enumerate().map(second).collect()
    }

    #[test]
    fn the_highest_use_of_ten_seconds_counts() {
        let seconds: Vec<[f64; 2]> =
            (0..13).map(|second| [4.0, if second == 1 { 0.3 } else { 0.0 }]).collect();
        let of_second: Vec<f64> = shares(2.0, &seconds).into_iter().map(|[_, b]| b).collect();
        assert!((of_second[0] - 0.1).abs() < 1e-9, "its floor: {of_second:?}");
        assert!((1..=11).all(|second| (of_second[second] - 0.6).abs() < 1e-9), "{of_second:?}");
        assert!((of_second[12] - 0.1).abs() < 1e-9, "{of_second:?}");
    }

    #[test]
    fn noise_changes_no_share_and_the_sum_stays_within_the_budget() {
        let seconds: Vec<[f64; 2]> =
            (0..60).map(|second| [4.0, 0.3 + f64::from(second % 7) * 0.003]).collect();
        let shares = shares(2.0, &seconds);
        assert!(shares.iter().all(|[a, b]| a + b <= 2.0 + 1e-9), "{shares:?}");
        assert!(shares[12..].windows(2).all(|pair| pair[0] == pair[1]), "{shares:?}");
    }
}
