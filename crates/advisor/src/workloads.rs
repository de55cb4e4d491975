//! Knowledge of workloads from their containers, kept for hours: the next one may start when no
//! other one runs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use analysis::injection::{Known, KnownWorkloads};

/// Time for which a workload without containers is kept, and a live set that is not reached again.
const KEPT_FOR: Duration = Duration::from_secs(6 * 3600);
/// Maximum number of workloads; beyond it, those without a container for the longest time are
/// dropped.
const CAPACITY: usize = 1024;

/// Namespace, container name and image.
type Key = (String, String, String);

/// Observations of one container. `None` means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) live_set_bytes: Option<u64>,
    /// For a Go program: whether it follows its limit.
    pub(crate) go_follows_limit: Option<bool>,
}

/// All workloads of the node.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    entries: HashMap<Key, WorkloadEntry>,
}

#[derive(Debug)]
struct WorkloadEntry {
    /// Largest live set, and the time when it was last reached. A container that has just started
    /// has a smaller one.
    live_set: Option<(u64, Instant)>,
    go_follows_limit: bool,
    seen: Instant,
}

impl Workloads {
    /// Adds what the present containers have shown; of contradictions the last one counts.
    pub(crate) fn add(&mut self, containers: impl Iterator<Item = (Key, Shown)>, now: Instant) {
        for (key, shown) in containers.filter(|(_, shown)| *shown != Shown::default()) {
            let new = WorkloadEntry { live_set: None, go_follows_limit: false, seen: now };
            let entry = self.entries.entry(key).or_insert(new);
            entry.seen = now;
            entry.go_follows_limit = shown.go_follows_limit.unwrap_or(entry.go_follows_limit);
            let is_kept = |&(largest, at): &(u64, Instant)| {
                shown.live_set_bytes.is_none_or(|bytes| bytes < largest) && is_recent(at, now)
            };
            let present = shown.live_set_bytes.map(|bytes| (bytes, now));
            entry.live_set = entry.live_set.filter(is_kept).or(present);
        }
        self.entries.retain(|_, entry| is_recent(entry.seen, now));
        while self.entries.len() > CAPACITY {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.seen);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { break };
            self.entries.remove(&key);
        }
    }

    pub(crate) fn known(&self) -> KnownWorkloads {
        let known = |entry: &WorkloadEntry| Known {
            live_set_bytes: entry.live_set.map(|(bytes, _)| bytes),
            go_follows_limit: entry.go_follows_limit,
        };
        self.entries.iter().map(|(key, entry)| (key.clone(), known(entry))).collect()
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= KEPT_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("shop".to_owned(), name.to_owned(), "shop/cart:1".to_owned())
    }

    fn live_set(bytes: u64) -> Shown {
        Shown { live_set_bytes: Some(bytes), ..Shown::default() }
    }

    fn go(follows: bool) -> Shown {
        Shown { go_follows_limit: Some(follows), ..Shown::default() }
    }

    fn of_app(workloads: &Workloads) -> Option<Known> {
        workloads.known().get(&key("app")).copied()
    }

    #[test]
    fn a_workload_is_known_for_hours_after_its_last_container() {
        let (mut workloads, now) = (Workloads::default(), Instant::now());
        let shown = Shown { live_set_bytes: Some(64), go_follows_limit: Some(true) };
        workloads.add([(key("app"), shown)].into_iter(), now);
        let known = Some(Known { live_set_bytes: Some(64), go_follows_limit: true });
        assert_eq!(of_app(&workloads), known);
        workloads.add([].into_iter(), now + KEPT_FOR);
        assert_eq!(of_app(&workloads), known);
        workloads.add([].into_iter(), now + KEPT_FOR + Duration::from_secs(1));
        assert_eq!(of_app(&workloads), None);
    }

    #[test]
    fn the_largest_live_set_of_the_last_hours_counts() {
        let (mut workloads, start) = (Workloads::default(), Instant::now());
        let mut after = |hours: u64, shown: &[Shown]| {
            let now = start + Duration::from_secs(hours * 3600);
            workloads.add(shown.iter().map(|shown| (key("app"), *shown)), now);
            of_app(&workloads).unwrap().live_set_bytes
        };
        assert_eq!(after(0, &[live_set(48), live_set(64), live_set(32)]), Some(64));
        assert_eq!(after(5, &[live_set(8), go(true)]), Some(64), "it has just started");
        assert_eq!(after(7, &[live_set(32), live_set(48)]), Some(48));
        assert_eq!(after(8, &[live_set(96)]), Some(96));
    }

    #[test]
    fn an_undetected_program_does_not_hide_a_detected_one() {
        let (mut workloads, now) = (Workloads::default(), Instant::now());
        let mut follows = |shown: &[Shown]| {
            workloads.add(shown.iter().map(|shown| (key("app"), *shown)), now);
            of_app(&workloads).unwrap().go_follows_limit
        };
        assert!(follows(&[go(true)]));
        assert!(follows(&[live_set(64), Shown::default()]));
        assert!(!follows(&[go(false)]));
    }

    #[test]
    fn the_number_of_workloads_is_bounded() {
        let (mut workloads, now) = (Workloads::default(), Instant::now());
        workloads.add([(key("app"), live_set(64))].into_iter(), now);
        let others = (0..CAPACITY).map(|number| (key(&number.to_string()), live_set(1)));
        workloads.add(others, now + Duration::from_secs(1));
        assert_eq!((workloads.known().len(), of_app(&workloads)), (CAPACITY, None));
    }
}
