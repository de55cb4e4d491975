//! Creations of containers that got their CPUs here, until the runtime has completed them.
//!
//! A runtime fails a creation if two plugins set its CPUs. A plugin that comes later is visible
//! only by this. Creations fail for other reasons as well, such as a missing command, and every
//! author of a pod can cause them. So a suspicion holds for its pod, and the node steps back only
//! if creations in two namespaces failed with CPUs and succeeded without them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of failed creations after which a container is created without CPUs. The kubelet repeats
/// a creation after some seconds.
const FAILURES: u32 = 3;

/// Time from the last step of an attempt until it is forgotten.
const REMEMBERED_FOR: Duration = Duration::from_secs(30 * 60);

/// The creations that have not been completed and the suspected ones, by pod and
/// `namespace/pod/container`.
#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<(String, String), Attempt>);

#[derive(Debug, Clone, Copy)]
struct Attempt {
    outcome: Outcome,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// This number of creations in a row began with CPUs.
    Placed(u32),
    /// All of them failed. The last creation began without CPUs.
    Suspected,
    /// The creation without CPUs is complete: the CPUs were the cause.
    Confirmed,
    /// Creations without CPUs fail too: the CPUs are not the cause.
    Cleared,
}

impl Attempts {
    /// A creation begins, with CPUs if `is_placed`. Returns whether it may have them.
    pub(super) fn begin(&mut self, pod: &str, name: &str, is_placed: bool, now: Instant) -> bool {
        self.forget(now);
        if self.is_confirmed(pod) {
            return false;
        }
        let key = (pod.to_owned(), name.to_owned());
        let next = match self.0.get(&key).map(|attempt| attempt.outcome) {
            None if is_placed => Outcome::Placed(1),
            Some(Outcome::Placed(FAILURES)) if is_placed => Outcome::Suspected,
            Some(Outcome::Placed(count)) if is_placed => Outcome::Placed(count + 1),
            Some(Outcome::Suspected) => Outcome::Cleared,
            None | Some(_) => return true,
        };
        self.0.insert(key, Attempt { outcome: next, since: now });
        next != Outcome::Suspected
    }

    /// A creation is complete. Without CPUs, it confirms that they were the cause.
    pub(super) fn end(&mut self, pod: &str, name: &str, now: Instant) {
        self.0.retain(|(of, container), attempt| {
            let is_it = (&**of, &**container) == (pod, name);
            if is_it && attempt.outcome == Outcome::Suspected {
                *attempt = Attempt { outcome: Outcome::Confirmed, since: now };
            }
            !is_it || attempt.outcome == Outcome::Confirmed
        });
    }

    pub(super) fn remove_pod(&mut self, pod: &str) {
        self.0.retain(|(of, _), _| *of != *pod);
    }

    /// The obstacle to writing any cpuset, if another program seems to set CPUs: confirmed
    /// suspicions in two namespaces.
    pub(super) fn obstacle(&self, now: Instant) -> Option<String> {
        let confirmed = self.0.iter().filter(|(_, attempt)| attempt.outcome == Outcome::Confirmed);
        let mut names = confirmed.filter(|(_, one)| !one.is_over(now)).map(|((_, name), _)| name);
        let first = names.next()?;
        let second = names.find(|name| namespace(name) != namespace(first))?;
        Some(format!(
            "the runtime failed {FAILURES} creations each of {first} and {second} with the CPUs \
             of this agent, but none without: another NRI plugin seems to set CPUs"
        ))
    }

    /// Whether the CPUs made creations of this pod fail.
    fn is_confirmed(&self, pod: &str) -> bool {
        let of_pod = self.0.range((pod.to_owned(), String::new())..);
        let mut of_pod = of_pod.take_while(|((of, _), _)| *of == *pod);
        of_pod.any(|(_, attempt)| attempt.outcome == Outcome::Confirmed)
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, attempt| !attempt.is_over(now));
    }
}

impl Attempt {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= REMEMBERED_FOR
    }
}

/// The namespace of `namespace/pod/container`.
fn namespace(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "shop/web/app";

    /// Fails until the creation of this container has no CPUs any more.
    fn suspect(attempts: &mut Attempts, pod: &str, name: &str, now: Instant) {
        assert!((0..FAILURES).all(|_| attempts.begin(pod, name, true, now)));
        assert!(!attempts.begin(pod, name, true, now));
    }

    #[test]
    fn failed_creations_of_one_namespace_are_a_matter_of_their_pods() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for (pod, name) in [("u", WEB), ("v", "shop/web-2/app")] {
            suspect(&mut attempts, pod, name, now);
            attempts.end(pod, name, now);
            assert!(!attempts.begin(pod, name, true, now), "without CPUs it works");
            assert!(!attempts.begin(pod, "shop/web/log", true, now), "of the same pod");
        }
        assert_eq!(attempts.obstacle(now), None);
        assert!(attempts.begin("w", "shop/db/app", true, now), "another pod");
    }

    #[test]
    fn creations_that_succeed_only_without_cpus_in_two_namespaces_are_an_obstacle() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        suspect(&mut attempts, "u", WEB, now);
        suspect(&mut attempts, "v", "jobs/index/app", now);
        attempts.end("u", WEB, now);
        assert_eq!(attempts.obstacle(now), None, "the other one may fail without CPUs too");
        attempts.end("v", "jobs/index/app", now);
        let expected = "the runtime failed 3 creations each of shop/web/app and jobs/index/app with the CPUs \
                        of this agent, but none without: another NRI plugin seems to set CPUs";
        assert_eq!(attempts.obstacle(now).as_deref(), Some(expected));
        attempts.remove_pod("w");
        assert!(attempts.obstacle(now).is_some());
        attempts.remove_pod("u");
        assert_eq!(attempts.obstacle(now), None);
    }

    #[test]
    fn a_suspicion_expires_after_half_an_hour() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for (pod, name) in [("u", WEB), ("v", "jobs/index/app")] {
            suspect(&mut attempts, pod, name, now);
            attempts.end(pod, name, now);
        }
        let before = now + REMEMBERED_FOR.checked_sub(Duration::from_secs(1)).unwrap();
        assert!(attempts.obstacle(before).is_some());
        assert!(!attempts.begin("u", WEB, true, before));
        assert_eq!(attempts.obstacle(now + REMEMBERED_FOR), None);
        assert!(attempts.begin("u", WEB, true, now + REMEMBERED_FOR));
        attempts.forget(now + 2 * REMEMBERED_FOR);
        assert!(attempts.0.is_empty());
    }

    #[test]
    fn a_container_that_fails_without_cpus_too_clears_them() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        suspect(&mut attempts, "u", WEB, now);
        assert!((0..2 * FAILURES).all(|_| attempts.begin("u", WEB, true, now)));
        attempts.end("u", WEB, now);
        assert!(attempts.begin("u", WEB, true, now) && attempts.obstacle(now).is_none());
    }

    #[test]
    fn completed_creations_other_containers_and_those_without_cpus_do_not_count() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..2 * FAILURES {
            assert!(attempts.begin("u", WEB, true, now));
            assert!(attempts.begin("u", "shop/web/log", false, now));
            attempts.end("u", WEB, now);
        }
        for pod in ["a", "b", "c", "d"] {
            assert!(attempts.begin(pod, WEB, true, now));
        }
        assert_eq!(attempts.obstacle(now), None);
    }
}
