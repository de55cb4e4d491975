//! The wait of a pod's first container for the kubelet's list. Pure: time is an argument.
//!
//! A lock of the runtime serializes all creations of a node, so the waits are bounded.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Maximum wait of a pod.
const OF_POD: Duration = Duration::from_millis(300);
/// Maximum sum of the waits within [`WINDOW`].
const OF_NODE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(10);
/// Interval between two looks at the list.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The waits so far.
#[derive(Debug, Default)]
pub(crate) struct ListWaits {
    /// UIDs of the pods that have waited.
    pods: BTreeSet<String>,
    /// Ends of the waits within the window, with their lengths.
    recent: VecDeque<(Instant, Duration)>,
}

impl ListWaits {
    /// Waits while `is_unlisted`, if the pod may still wait.
    pub(crate) fn wait(
        &mut self,
        pod: &str,
        is_unlisted: impl Fn() -> bool,
        now: impl Fn() -> Instant,
        sleep: impl Fn(Duration),
    ) {
        if !is_unlisted() {
            return;
        }
        let start = now();
        let left = self.left(start);
        if left.is_zero() || !self.pods.insert(pod.to_owned()) {
            return;
        }
        let mut waited = Duration::ZERO;
        while waited < left {
            sleep(LOOK_EVERY.min(left - waited));
            waited = now().saturating_duration_since(start);
            if !is_unlisted() {
                break;
            }
        }
        self.recent.push_back((start + waited, waited));
    }

    pub(crate) fn remove_pod(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    pub(crate) fn clear(&mut self) {
        self.pods.clear();
    }

    /// Maximum wait from now on.
    fn left(&mut self, now: Instant) -> Duration {
        let is_old = |end: Instant| now.saturating_duration_since(end) > WINDOW;
        while self.recent.front().is_some_and(|(end, _)| is_old(*end)) {
            self.recent.pop_front();
        }
        let spent: Duration = self.recent.iter().map(|(_, waited)| *waited).sum();
        OF_NODE.saturating_sub(spent).min(OF_POD)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Waits of pods in virtual time.
    struct Node {
        waits: ListWaits,
        start: Instant,
        now: Cell<Instant>,
    }

    impl Node {
        fn new() -> Self {
            let start = Instant::now();
            Self { waits: ListWaits::default(), start, now: Cell::new(start) }
        }

        /// Wait of a pod that is listed at this time since the start. Returns its milliseconds.
        fn wait(&mut self, pod: &str, listed_at: Duration) -> u128 {
            let (before, now) = (self.now.get(), &self.now);
            let is_unlisted = || now.get() < self.start + listed_at;
            let sleep = |time| now.set(now.get() + time);
            self.waits.wait(pod, is_unlisted, || now.get(), sleep);
            self.now.get().duration_since(before).as_millis()
        }
    }

    #[test]
    fn a_pod_waits_once_until_it_is_listed() {
        let mut node = Node::new();
        assert_eq!(node.wait("listed", Duration::ZERO), 0);
        assert_eq!(node.wait("a", 42 * MS), 45, "looks every 5 ms");
        assert_eq!(node.wait("b", 9000 * MS), 300);
        assert_eq!(node.wait("b", 9000 * MS), 0, "its next container");
        node.waits.remove_pod("b");
        assert_eq!(node.wait("b", 9000 * MS), 300, "another sandbox");
    }

    #[test]
    fn the_node_waits_a_second_in_ten() {
        let mut node = Node::new();
        let never = Duration::from_secs(1000);
        let waits = ["a", "b", "c", "d", "e"].map(|pod| node.wait(pod, never));
        assert_eq!(waits, [300, 300, 300, 100, 0]);
        node.now.set(node.start + 10_300 * MS);
        assert_eq!(node.wait("f", never), 0);
        node.now.set(node.start + 10_301 * MS);
        assert_eq!(node.wait("f", never), 300, "the first wait is over");
    }
    /// Creations of a node's start, one after the other: 110 pods with two containers each, which
    /// the runtime creates within 20 ms each. Returns the milliseconds of all waits, and the number
    /// of containers that were created before the list.
    fn start_of_a_node(listed_at: Duration) -> (u128, u32) {
        let mut node = Node::new();
        let (mut waited_ms, mut before_list) = (0, 0);
        for pod in 0..110 {
            for _ in 0..2 {
                node.now.set(node.now.get() + 20 * MS);
                waited_ms += node.wait(&pod.to_string(), listed_at);
                before_list += u32::from(node.now.get() < node.start + listed_at);
            }
        }
        (waited_ms, before_list)
    }

    #[test]
    fn a_start_of_the_node_is_delayed_by_a_second_at_most() {
        assert_eq!(start_of_a_node(Duration::ZERO), (0, 0));
        // Two pods wait 300 ms each, the third one until the list.
        assert_eq!(start_of_a_node(900 * MS), (800, 4));
        // 99 creations take two seconds, and the waits one.
        assert_eq!(start_of_a_node(3000 * MS), (1000, 99));
        assert_eq!(start_of_a_node(60_000 * MS), (1000, 220), "within ten seconds");
    }
}
