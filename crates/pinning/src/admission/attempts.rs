//! Creations of containers that got their CPUs here, until the runtime has completed them.
//!
//! A runtime fails a creation if two plugins set its CPUs. A plugin that comes later is visible
//! only by this.

use std::collections::BTreeMap;

/// Number of failed creations after which a container is created without CPUs. The kubelet repeats
/// a creation after some seconds.
const FAILURES: u32 = 3;

/// The creations that have not been completed, by pod and `namespace/pod/container`.
#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<(String, String), Attempt>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// This number of creations in a row began with CPUs.
    Placed(u32),
    /// All of them failed. The last creation began without CPUs.
    Suspected,
    /// Creations without CPUs fail too: the CPUs are not the cause.
    Cleared,
}

impl Attempts {
    /// A creation begins, with CPUs if `is_placed`. Returns whether it may have them.
    pub(super) fn begin(&mut self, pod: &str, name: &str, is_placed: bool) -> bool {
        let key = (pod.to_owned(), name.to_owned());
        let next = match self.0.get(&key) {
            None if is_placed => Attempt::Placed(1),
            Some(Attempt::Placed(FAILURES)) if is_placed => Attempt::Suspected,
            Some(Attempt::Placed(count)) if is_placed => Attempt::Placed(count + 1),
            Some(Attempt::Suspected) => Attempt::Cleared,
            None | Some(Attempt::Placed(_) | Attempt::Cleared) => return true,
        };
        self.0.insert(key, next);
        next != Attempt::Suspected
    }

    /// A creation is complete. Without CPUs, it confirms that they were the cause.
    pub(super) fn end(&mut self, pod: &str, name: &str) {
        self.0.retain(|(of, container), attempt| {
            (&**of, &**container) != (pod, name) || *attempt == Attempt::Suspected
        });
    }

    /// Returns whether this ends the obstacle.
    pub(super) fn remove_pod(&mut self, pod: &str) -> bool {
        let was_obstacle = self.obstacle().is_some();
        self.0.retain(|(of, _), _| *of != *pod);
        was_obstacle && self.obstacle().is_none()
    }

    /// The obstacle to writing any cpuset, if another program seems to set CPUs.
    pub(super) fn obstacle(&self) -> Option<String> {
        let mut suspected = self.0.iter().filter(|(_, attempt)| **attempt == Attempt::Suspected);
        let ((_, name), _) = suspected.next()?;
        Some(format!(
            "the runtime failed {FAILURES} creations of {name} with the CPUs of this agent: \
             another NRI plugin seems to set them"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "shop/web/app";

    #[test]
    fn creations_that_fail_again_and_again_are_an_obstacle() {
        let mut attempts = Attempts::default();
        assert!((0..FAILURES).all(|_| attempts.begin("u", WEB, true)));
        assert_eq!(attempts.obstacle(), None);
        assert!(!attempts.begin("u", WEB, true));
        let expected = "the runtime failed 3 creations of shop/web/app with the CPUs of this agent: \
                        another NRI plugin seems to set them";
        assert_eq!(attempts.obstacle().as_deref(), Some(expected));
        attempts.end("u", WEB);
        assert!(attempts.obstacle().is_some(), "without CPUs it works");
        assert!(!attempts.remove_pod("v") && attempts.remove_pod("u"));
        assert_eq!(attempts.obstacle(), None);
    }

    #[test]
    fn a_container_that_fails_without_cpus_too_is_no_obstacle() {
        let mut attempts = Attempts::default();
        (0..=FAILURES).for_each(|_| _ = attempts.begin("u", WEB, true));
        assert!(attempts.obstacle().is_some());
        assert!(attempts.begin("u", WEB, false) && attempts.obstacle().is_none());
        assert!((0..2 * FAILURES).all(|_| attempts.begin("u", WEB, true)));
        assert_eq!(attempts.obstacle(), None);
    }

    #[test]
    fn completed_creations_other_containers_and_those_without_cpus_do_not_count() {
        let mut attempts = Attempts::default();
        for _ in 0..2 * FAILURES {
            assert!(attempts.begin("u", WEB, true) && attempts.begin("u", "shop/web/log", false));
            attempts.end("u", WEB);
        }
        for pod in ["a", "b", "c", "d"] {
            assert!(attempts.begin(pod, WEB, true));
        }
        assert_eq!(attempts.obstacle(), None);
    }
}
