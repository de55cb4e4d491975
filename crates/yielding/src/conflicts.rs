//! Conflicts with other writers, by pod, and the pauses after too many of them.
//!
//! A pod with access to the cgroup file system can undo what is written to it. So conflicts are a
//! matter of their pod, and a feature steps back only if most of its pods are in conflict, in more
//! than one namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use state_dir::{Pause, PauseLengths, Trouble};

use crate::pods;

/// Length of a pod's conflict, and time for which a feature only observes after too many of them.
const PAUSE: Duration = Duration::from_secs(600);

/// Minimum time between two repairs of a pod in conflict.
const REPAIR_EVERY: Duration = Duration::from_secs(10);

/// Conflicts of one feature.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// By the pod's UID.
    pods: BTreeMap<Box<str>, OfPod>,
    /// Pause of the feature.
    pause: Option<Pause>,
}

#[derive(Debug, Default)]
struct OfPod {
    /// Empty if the pod is not known.
    namespace: String,
    passes: Trouble,
    noted_at: Option<Instant>,
    /// While it lasts, the pod is in conflict.
    pause: Option<Pause>,
    repaired_at: Option<Instant>,
}

impl Conflicts {
    /// Whether the feature is paused.
    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|pause| pause.lasts(now))
    }

    /// Whether another writer keeps changing settings of this pod.
    pub(crate) fn is_in_conflict(&self, pod: &str, now: Instant) -> bool {
        self.pods.get(pod).is_some_and(|pod| pod.is_in_conflict(now))
    }

    /// Records that another writer had changed a setting of this pod, once per pass. Returns
    /// whether too many changes put the pod in conflict now.
    pub(crate) fn note(&mut self, pod: &str, namespace: &str, now: Instant) -> bool {
        let of_pod = self.pods.entry(pod.into()).or_default();
        if of_pod.noted_at.replace(now) == Some(now) || of_pod.is_in_conflict(now) {
            return false;
        }
        namespace.clone_into(&mut of_pod.namespace);
        of_pod.passes.note(now);
        let is_too_often = of_pod.passes.is_too_often(now);
        if is_too_often {
            (of_pod.pause, of_pod.passes) = (Some(pause(now)), Trouble::default());
        }
        is_too_often
    }

    /// Whether what another writer has changed may be written again in this pass.
    pub(crate) fn may_repair(&mut self, pod: &str, now: Instant) -> bool {
        let Some(of_pod) = self.pods.get_mut(pod) else { return true };
        let is_too_soon = |at: Instant| {
            let since = now.saturating_duration_since(at);
            !since.is_zero() && since < REPAIR_EVERY
        };
        if of_pod.is_in_conflict(now) && of_pod.repaired_at.is_some_and(is_too_soon) {
            return false;
        }
        of_pod.repaired_at = Some(now);
        true
    }

    /// Pauses the feature if more than half of the pods that it writes are in conflict, in two
    /// namespaces. Forgets old conflicts.
    pub(crate) fn judge(&mut self, written: &BTreeSet<Box<str>>, now: Instant) {
        self.pods.retain(|_, pod| pod.is_in_conflict(now) || pod.passes.is_recent(now));
        let in_conflict =
            self.pods.iter().filter(|(uid, pod)| written.contains(*uid) && pod.is_in_conflict(now));
        let count = in_conflict.clone().count();
        let namespaces: BTreeSet<&str> = in_conflict
            .map(|(_, pod)| &*pod.namespace)
            .filter(|namespace| !namespace.is_empty())
            .collect();
        if count * 2 > written.len() && namespaces.len() > 1 {
            *self = Self { pods: BTreeMap::new(), pause: Some(pause(now)) };
        }
    }
}

impl OfPod {
    fn is_in_conflict(&self, now: Instant) -> bool {
        self.pause.is_some_and(|pause| pause.lasts(now))
    }
}

fn pause(now: Instant) -> Pause {
    Pause::after(None, PauseLengths { first: PAUSE, longest: PAUSE }, now)
}

/// UID of the pod that a cgroup belongs to.
pub(crate) fn pod_of(cgroup: &Path) -> Box<str> {
    let uid = pods::parse(cgroup).and_then(|path| Some(path.pod()?.uid.clone()));
    uid.unwrap_or_else(|| cgroup.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, second: u64) -> Instant {
        start + Duration::from_secs(second)
    }

    /// Six changes within six seconds.
    fn insist(conflicts: &mut Conflicts, pods: &[(&str, &str)], start: Instant) {
        for second in 0..6 {
            for (pod, namespace) in pods {
                let is_new = conflicts.note(pod, namespace, at(start, second));
                assert_eq!(is_new, second == 5, "{pod}, second {second}");
                assert!(!conflicts.note(pod, namespace, at(start, second)), "once per pass");
            }
        }
    }

    fn written(pods: &[&str]) -> BTreeSet<Box<str>> {
        pods.iter().map(|&pod| pod.into()).collect()
    }

    #[test]
    fn a_pod_in_conflict_is_repaired_once_in_ten_seconds() {
        let (mut conflicts, start) = (Conflicts::default(), Instant::now());
        insist(&mut conflicts, &[("a", "n")], start);
        assert!(conflicts.is_in_conflict("a", at(start, 5)));
        assert!(!conflicts.is_in_conflict("b", at(start, 5)));
        let repaired: Vec<u64> =
            (6..40).filter(|&second| conflicts.may_repair("a", at(start, second))).collect();
        assert_eq!(repaired, [6, 16, 26, 36]);
        assert!(conflicts.may_repair("a", at(start, 46)));
        assert!(conflicts.may_repair("a", at(start, 46)), "another setting, in the same pass");
        assert!((40..50).all(|second| conflicts.may_repair("b", at(start, second))));
        assert!(!conflicts.is_in_conflict("a", at(start, 605)));
        conflicts.judge(&written(&["a"]), at(start, 700));
        assert!(conflicts.pods.is_empty());
    }

    #[test]
    fn the_feature_pauses_only_with_most_pods_in_two_namespaces() {
        let start = Instant::now();
        for (pods, all, expected) in [
            (&[("a", "n")][..], &["a"][..], false),
            (&[("a", "n"), ("b", "n")], &["a", "b"], false),
            (&[("a", "n"), ("b", "m")], &["a", "b", "c", "d"], false),
            (&[("a", "n"), ("b", "m")], &["b", "c", "d"], false),
            (&[("a", "n"), ("b", "m")], &["a", "b", "c"], true),
            (&[("a", "n"), ("b", "")], &["a", "b", "c"], false),
        ] {
            let mut conflicts = Conflicts::default();
            insist(&mut conflicts, pods, start);
            conflicts.judge(&written(all), at(start, 5));
            assert_eq!(conflicts.is_paused(at(start, 604)), expected, "{pods:?} of {all:?}");
            assert!(!conflicts.is_paused(at(start, 605)));
        }
    }
}
