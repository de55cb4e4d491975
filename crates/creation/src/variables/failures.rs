//! Creations of containers with injected variables, until the runtime has completed them.
//!
//! A runtime fails a creation if two plugins set the same variable. A plugin that comes later is
//! visible only by this. Pure: time is an argument.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of failed creations after which a container is created without variables. The kubelet
/// repeats a creation after some seconds.
const FAILURES: u32 = 3;

/// Time for which a container is created without variables then.
const WITHOUT: Duration = Duration::from_secs(30 * 60);

/// The failed creations in a row, by pod and container.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<(String, String), Failed>);

#[derive(Debug, Clone, Copy)]
struct Failed {
    /// Creations with variables that are not known to be complete.
    creations: u32,
    /// Time of the last one.
    since: Instant,
}

impl Failures {
    /// A creation with variables begins. Returns whether it may have them.
    pub(super) fn begin(&mut self, pod: &str, container: &str, now: Instant) -> bool {
        self.0.retain(|_, failed| now.saturating_duration_since(failed.since) < WITHOUT);
        let key = (pod.to_owned(), container.to_owned());
        let failed = self.0.entry(key).or_insert(Failed { creations: 0, since: now });
        if failed.creations >= FAILURES {
            return false;
        }
        *failed = Failed { creations: failed.creations + 1, since: now };
        true
    }

    /// A creation is complete. Without variables, later ones have none either.
    pub(super) fn end(&mut self, pod: &str, container: &str) {
        self.0.retain(|(of, name), failed| {
            (&**of, &**name) != (pod, container) || failed.creations >= FAILURES
        });
    }

    pub(super) fn remove_pod(&mut self, pod: &str) {
        self.0.retain(|(of, _), _| *of != *pod);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_three_failed_creations_a_container_has_no_variables_for_half_an_hour() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        for _ in 0..2 * FAILURES {
            assert!(failures.begin("u", "app", now));
            failures.end("u", "app");
        }
        assert!((0..FAILURES).all(|_| failures.begin("u", "app", now)));
        assert!(!failures.begin("u", "app", now));
        failures.end("u", "app");
        let end = now + WITHOUT;
        assert!(!failures.begin("u", "app", end.checked_sub(Duration::from_secs(1)).unwrap()));
        assert!(failures.begin("u", "log", now) && failures.begin("v", "app", now), "others");
        assert!(failures.begin("u", "app", end));
        failures.remove_pod("u");
        failures.remove_pod("v");
        assert!(failures.0.is_empty());
    }
}
