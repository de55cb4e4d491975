//! Counts repairs and failures per pod, pauses pods with too many of them, and ends the pauses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use placement::Uid;

/// Time window in which repairs and failures count.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of repairs of one cgroup, and of failed passes of one pod, within the window. A
/// daemon-reload or a kubelet restart rewrites every cgroup, over several ticks, but each cgroup
/// only once.
const BORNE: usize = 5;
/// Pause before the first new attempt; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const MAX_PAUSE: Duration = Duration::from_secs(30 * 60);
/// Once this time has passed since the end of a pause, the next pause is [`FIRST_PAUSE`] again.
const FORGIVEN: Duration = Duration::from_secs(30 * 60);

/// Reason to pause a pod or the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseCause {
    /// Another writer keeps rewriting the cpusets.
    Rewritten,
    /// The cpusets cannot be written or read.
    WriteFailed,
}

/// A pause, with the number of pauses before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) cause: PauseCause,
    since: Instant,
    attempt: u32,
}

/// Repairs and failures of the last minute, and the pauses.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pods: BTreeMap<Uid, Trouble>,
    node: Option<Pause>,
}

#[derive(Debug, Default)]
struct Trouble {
    rewrites: BTreeMap<PathBuf, Times>,
    failures: Times,
    pause: Option<Pause>,
}

#[derive(Debug, Default)]
struct Times(VecDeque<Instant>);

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

impl Pause {
    fn after(earlier: Option<Self>, cause: PauseCause, now: Instant) -> Self {
        let earlier =
            earlier.filter(|earlier| now.saturating_duration_since(earlier.until()) < FORGIVEN);
        Self {
            cause,
            since: now,
            attempt: earlier.map_or(0, |earlier| earlier.attempt.saturating_add(1)),
        }
    }

    /// Length of the pause: 1, 2, 4 … 30 minutes.
    fn length(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.attempt.min(8)).min(MAX_PAUSE)
    }

    /// [`Pause::length`] in minutes.
    pub(crate) fn minutes(&self) -> u64 {
        self.length().as_secs() / 60
    }

    /// End of the pause: time of the next attempt.
    pub(crate) fn until(&self) -> Instant {
        self.since + self.length()
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; next attempt in {} min", self.cause, self.minutes())
    }
}

impl Repairs {
    /// Counts a repair of this cgroup of the pod.
    pub(crate) fn rewritten(&mut self, uid: &Uid, cgroup: PathBuf, now: Instant) {
        self.pods
            .entry(uid.clone())
            .or_default()
            .rewrites
            .entry(cgroup)
            .or_default()
            .0
            .push_back(now);
    }

    /// Counts a pass in which this pod's cpusets could not be applied.
    pub(crate) fn failed(&mut self, uid: &Uid, now: Instant) {
        self.pods.entry(uid.clone()).or_default().failures.0.push_back(now);
    }

    /// Pauses each pod with too many repairs or failures, or the node if most of its pods are
    /// paused.
    pub(crate) fn judge(&mut self, pods: &BTreeSet<&Uid>, now: Instant) -> NewPauses {
        self.pods.retain(|uid, trouble| pods.contains(uid) && trouble.is_remembered(now));
        let mut pauses = NewPauses::default();
        for (uid, trouble) in &mut self.pods {
            if let Some(cause) = trouble.is_too_often(now) {
                let pause = Pause::after(trouble.pause, cause, now);
                *trouble = Trouble { pause: Some(pause), ..Trouble::default() };
                pauses.pods.push((uid.clone(), pause));
            }
        }
        for cause in [PauseCause::Rewritten, PauseCause::WriteFailed] {
            let paused =
                self.pods.values().filter(|trouble| trouble.paused(now) == Some(cause)).count();
            if paused > 1 && paused * 2 > pods.len() {
                let pause = Pause::after(self.node, cause, now);
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
    pub(crate) pods: Vec<(Uid, Pause)>,
    pub(crate) node: Option<Pause>,
}

impl Trouble {
    fn is_too_often(&mut self, now: Instant) -> Option<PauseCause> {
        if self.paused(now).is_some() {
            return None;
        }
        if self.rewrites.values_mut().any(|times| times.forget(now) > BORNE) {
            return Some(PauseCause::Rewritten);
        }
        (self.failures.forget(now) > BORNE).then_some(PauseCause::WriteFailed)
    }

    fn paused(&self, now: Instant) -> Option<PauseCause> {
        self.pause.filter(|pause| now < pause.until()).map(|pause| pause.cause)
    }

    fn is_remembered(&mut self, now: Instant) -> bool {
        self.rewrites.retain(|_, times| times.forget(now) > 0);
        let is_recent =
            self.pause.is_some_and(|pause| now.saturating_duration_since(pause.until()) < FORGIVEN);
        is_recent || !self.rewrites.is_empty() || self.failures.forget(now) > 0
    }
}

impl Times {
    /// Drops the times before the window and returns the number of the others.
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

    fn uids(count: usize) -> Vec<Uid> {
        (0..count).map(|n| format!("pod{n}").into()).collect()
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
            last = repairs.judge(&all.iter().collect(), now);
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
    fn pauses_double_from_1_minute_up_to_30_minutes() {
        let (all, mut repairs, mut now) = (uids(3), Repairs::default(), Instant::now());
        let mut minutes = Vec::new();
        for _ in 0..7 {
            (0..=BORNE).for_each(|_| repairs.failed(&all[0], now));
            assert_eq!(repairs.judge(&all.iter().collect(), now).pods.len(), 1);
            let until = repairs.pods[&all[0]].pause.unwrap().until();
            minutes.push((until - now).as_secs() / 60);
            now = until;
        }
        assert_eq!(minutes, [1, 2, 4, 8, 16, 30, 30]);
        now += FORGIVEN;
        (0..=BORNE).for_each(|_| repairs.failed(&all[0], now));
        repairs.judge(&all.iter().collect(), now);
        assert_eq!(
            repairs.pods[&all[0]].pause.unwrap().until() - now,
            FIRST_PAUSE,
            "an old trouble is forgiven"
        );
    }

    #[test]
    fn old_ones_are_forgotten_and_so_are_pods_that_are_gone() {
        let (start, all, mut repairs) = (Instant::now(), uids(2), Repairs::default());
        for n in 0..100 {
            let now = start + Duration::from_secs(13 * n);
            repairs.rewritten(&all[0], "a".into(), now);
            repairs.failed(&all[0], now);
            assert_eq!(repairs.judge(&all.iter().collect(), now), NewPauses::default());
        }
        repairs.judge(&BTreeSet::new(), start);
        assert!(repairs.pods.is_empty());
    }

    #[test]
    fn each_cgroup_once_is_no_rival_however_many_there_are() {
        let (now, all, mut repairs) = (Instant::now(), uids(1), Repairs::default());
        (0..50).for_each(|n| repairs.rewritten(&all[0], format!("container{n}").into(), now));
        assert_eq!(repairs.judge(&all.iter().collect(), now), NewPauses::default());
    }
}
