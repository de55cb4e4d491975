//! Counts repairs and failures per pod, pauses pods with too many of them, and ends the pauses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use placement::Uid;
use state_dir::{Pause, PauseLengths, Trouble};

/// Lengths of the pauses: 1, 2, 4 … 30 minutes.
const PAUSES: PauseLengths =
    PauseLengths { first: Duration::from_secs(60), longest: Duration::from_secs(30 * 60) };

/// Reason to pause a pod or the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseCause {
    /// Another writer keeps rewriting the cpusets.
    Rewritten,
    /// The cpusets cannot be written or read.
    WriteFailed,
}

/// A pause with its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CausedPause {
    pub(crate) cause: PauseCause,
    pub(crate) pause: Pause,
}

/// Repairs and failures of the last minute, and the pauses.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pods: BTreeMap<Uid, OfPod>,
    node: Option<CausedPause>,
}

#[derive(Debug, Default)]
struct OfPod {
    rewrites: BTreeMap<PathBuf, Trouble>,
    failures: Trouble,
    pause: Option<CausedPause>,
}

impl PauseCause {
    /// Value of the label `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rewritten => "rewritten",
            Self::WriteFailed => "write_failed",
        }
    }
}

impl fmt::Display for PauseCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Rewritten => "another program keeps changing the cpusets",
            Self::WriteFailed => "failed to write the cpusets",
        })
    }
}

impl CausedPause {
    fn after(earlier: Option<Self>, cause: PauseCause, now: Instant) -> Self {
        let earlier = earlier.map(|earlier| earlier.pause);
        Self { cause, pause: Pause::after(earlier, PAUSES, now) }
    }
}

impl fmt::Display for CausedPause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; next attempt in {} min", self.cause, self.pause.minutes())
    }
}

impl Repairs {
    /// Counts a repair of this cgroup of the pod.
    pub(crate) fn rewritten(&mut self, uid: &Uid, cgroup: PathBuf, now: Instant) {
        self.pods.entry(uid.clone()).or_default().rewrites.entry(cgroup).or_default().note(now);
    }

    /// Counts a pass in which this pod's cpusets could not be applied.
    pub(crate) fn failed(&mut self, uid: &Uid, now: Instant) {
        self.pods.entry(uid.clone()).or_default().failures.note(now);
    }

    /// Pauses each pod with too many repairs or failures, or the node if most of its pods, in more
    /// than one namespace, are paused: the pods of one tenant cannot end enforcement for others.
    /// `pods` has the namespaces; empty if unknown.
    pub(crate) fn judge(&mut self, pods: &BTreeMap<&Uid, &str>, now: Instant) -> NewPauses {
        self.pods.retain(|uid, trouble| pods.contains_key(uid) && trouble.is_remembered(now));
        let mut pauses = NewPauses::default();
        for (uid, trouble) in &mut self.pods {
            if let Some(cause) = trouble.is_too_often(now) {
                let pause = CausedPause::after(trouble.pause, cause, now);
                *trouble = OfPod { pause: Some(pause), ..OfPod::default() };
                pauses.pods.push((uid.clone(), pause));
            }
        }
        for cause in [PauseCause::Rewritten, PauseCause::WriteFailed] {
            let paused = self.pods.iter().filter(|(_, pod)| pod.paused(now) == Some(cause));
            let paused: Vec<&str> = paused.filter_map(|(uid, _)| pods.get(uid).copied()).collect();
            let namespaces: BTreeSet<_> = paused.iter().filter(|one| !one.is_empty()).collect();
            if namespaces.len() > 1 && paused.len() * 2 > pods.len() {
                let pause = CausedPause::after(self.node, cause, now);
                *self = Self { pods: BTreeMap::new(), node: Some(pause) };
                return NewPauses { pods: Vec::new(), node: Some(pause) };
            }
        }
        pauses
    }

    /// Pods that are paused at `now`.
    pub(crate) fn paused(&self, now: Instant) -> BTreeMap<Uid, PauseCause> {
        self.pods
            .iter()
            .filter_map(|(uid, trouble)| Some((uid.clone(), trouble.paused(now)?)))
            .collect()
    }
}

/// Pauses that start now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NewPauses {
    pub(crate) pods: Vec<(Uid, CausedPause)>,
    pub(crate) node: Option<CausedPause>,
}

impl OfPod {
    fn is_too_often(&mut self, now: Instant) -> Option<PauseCause> {
        if self.paused(now).is_some() {
            return None;
        }
        if self.rewrites.values_mut().any(|times| times.is_too_often(now)) {
            return Some(PauseCause::Rewritten);
        }
        self.failures.is_too_often(now).then_some(PauseCause::WriteFailed)
    }

    fn paused(&self, now: Instant) -> Option<PauseCause> {
        self.pause.filter(|one| one.pause.lasts(now)).map(|one| one.cause)
    }

    fn is_remembered(&mut self, now: Instant) -> bool {
        self.rewrites.retain(|_, times| times.is_recent(now));
        self.pause.is_some_and(|one| !one.pause.is_forgiven(now))
            || !self.rewrites.is_empty()
            || self.failures.is_recent(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(count: usize) -> Vec<Uid> {
        (0..count).map(|n| format!("pod{n}").into()).collect()
    }

    /// Each pod in a namespace of its own.
    fn apart(all: &[Uid]) -> BTreeMap<&Uid, &str> {
        all.iter().map(|uid| (uid, &**uid)).collect()
    }

    /// Repeatedly judges these pods: at each of these seconds, after a rewrite of one cgroup of
    /// each pod in `rewritten`.
    fn rewrite(
        repairs: &mut Repairs,
        all: &[Uid],
        rewritten: &[Uid],
        start: Instant,
        seconds: std::ops::Range<u64>,
    ) -> NewPauses {
        let mut last = NewPauses::default();
        for second in seconds {
            let now = start + Duration::from_secs(second);
            rewritten.iter().for_each(|uid| repairs.rewritten(uid, "a".into(), now));
            last = repairs.judge(&apart(all), now);
        }
        last
    }

    #[test]
    fn few_repairs_in_a_minute_are_tolerated_and_more_pause_that_pod() {
        let (start, all) = (Instant::now(), uids(3));
        let mut repairs = Repairs::default();
        assert_eq!(rewrite(&mut repairs, &all, &all[..1], start, 0..5), NewPauses::default());
        let pauses = rewrite(&mut repairs, &all, &all[..1], start, 5..6);
        let pods: Vec<_> =
            pauses.pods.iter().map(|(uid, pause)| (uid.clone(), pause.cause)).collect();
        assert_eq!((pods, pauses.node), (vec![(all[0].clone(), PauseCause::Rewritten)], None));
        let paused = |second| {
            repairs.paused(start + Duration::from_secs(second)).into_keys().collect::<Vec<_>>()
        };
        assert_eq!((paused(64), paused(65)), (vec![all[0].clone()], vec![]));
    }

    #[test]
    fn failures_of_most_pods_pause_the_whole_node() {
        let (start, all) = (Instant::now(), uids(3));
        let pauses = rewrite(&mut Repairs::default(), &all, &all[..2], start, 0..6);
        assert!(
            pauses.pods.is_empty()
                && pauses.node.is_some_and(|pause| pause.cause == PauseCause::Rewritten)
        );
    }

    #[test]
    fn failures_of_all_pods_of_one_namespace_pause_only_these_pods() {
        let (now, all, mut repairs) = (Instant::now(), uids(3), Repairs::default());
        for uid in &all[..2] {
            (0..6).for_each(|_| repairs.failed(uid, now));
        }
        let pods = all.iter().map(|uid| (uid, "shop")).collect();
        let pauses = repairs.judge(&pods, now);
        assert_eq!((pauses.pods.len(), pauses.node), (2, None));
    }

    #[test]
    fn the_second_pause_of_a_pod_is_longer() {
        let (all, mut repairs, mut now) = (uids(3), Repairs::default(), Instant::now());
        for minutes in [1, 2, 4] {
            (0..6).for_each(|_| repairs.failed(&all[0], now));
            let pauses = repairs.judge(&apart(&all), now).pods;
            let [(_, CausedPause { cause: PauseCause::WriteFailed, pause })] = pauses[..] else {
                panic!("{pauses:?}")
            };
            assert_eq!(pause.minutes(), minutes);
            now = pause.until();
        }
    }

    #[test]
    fn old_ones_are_forgotten_and_so_are_pods_that_are_gone() {
        let (start, all, mut repairs) = (Instant::now(), uids(2), Repairs::default());
        for n in 0..100 {
            let now = start + Duration::from_secs(13 * n);
            repairs.rewritten(&all[0], "a".into(), now);
            repairs.failed(&all[0], now);
            assert_eq!(repairs.judge(&apart(&all), now), NewPauses::default());
        }
        repairs.judge(&BTreeMap::new(), start);
        assert!(repairs.pods.is_empty());
    }

    #[test]
    fn each_cgroup_once_is_no_rival_however_many_there_are() {
        let (now, all, mut repairs) = (Instant::now(), uids(1), Repairs::default());
        (0..50).for_each(|n| repairs.rewritten(&all[0], format!("container{n}").into(), now));
        assert_eq!(repairs.judge(&apart(&all), now), NewPauses::default());
    }
}
