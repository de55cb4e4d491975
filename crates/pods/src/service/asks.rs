//! Cgroups whose names are wanted, and when to ask for each. Pure: time is an argument.
//!
//! A container's id lags behind its cgroup (the kubelet lists it after its next relist, about a second), so one answer
//! may not be enough; and some cgroups are never listed at all, so asking must tire. Each cgroup is asked for at once,
//! then every half second for a while, then ever more rarely until the regular poll is as good.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::index::{Lookup, PodIndex};

/// Several containers of a pod start together: wait this long for the others before asking for all of them.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Shortest time between requests (at most 2/s).
pub(super) const SPACING: Duration = Duration::from_millis(500);
/// Attempts at full rate before the delay doubles: the kubelet's relist and a slow start fit in.
const EAGER_ATTEMPTS: u32 = 8;
/// Delay at which the regular poll takes over.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// A cgroup that nobody has asked for in this time is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// Bound of memory; above it, asks still count, but all as one.
const CAPACITY: usize = 4096;

#[derive(Debug)]
struct Ask {
    uid: Box<str>,
    attempts: u32,
    /// `None` once the regular poll is as good.
    due: Option<Instant>,
    /// First and last time that it was asked for.
    first: Instant,
    last: Instant,
}

/// All cgroups with an open question. Keyed by container id, or by UID for a pod's own cgroup.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: HashMap<Box<str>, Ask>,
    overflow: Option<Instant>,
}

impl Asks {
    /// Notes that this cgroup has no name in the present index. An empty `container_id` asks for the pod.
    /// True when this brings the next request forward.
    pub(super) fn ask(&mut self, uid: &str, container_id: &str, now: Instant) -> bool {
        let key = if container_id.is_empty() { uid } else { container_id };
        if let Some(ask) = self.open.get_mut(key) {
            ask.last = now;
            return false;
        }
        let due = now + DEBOUNCE;
        let sooner = self.due().is_none_or(|present| due < present);
        if self.open.len() >= CAPACITY {
            self.overflow.get_or_insert(due);
        } else {
            let ask = Ask { uid: uid.into(), attempts: 0, due: Some(due), first: now, last: now };
            self.open.insert(key.into(), ask);
        }
        sooner
    }

    /// When the next request is wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.values().filter_map(|ask| ask.due).chain(self.overflow).min()
    }

    /// Whether somebody waits for a name: then pods run, whatever a list says.
    pub(super) fn any(&self) -> bool {
        !self.open.is_empty() || self.overflow.is_some()
    }

    /// Drops the question of this cgroup: it is gone, or known for a sandbox.
    pub(super) fn withdraw(&mut self, container_id: &str) {
        self.open.remove(container_id);
    }

    /// Strikes what `index`, the answer to a request begun at `begun`, resolves, and defers the rest.
    pub(super) fn answered(&mut self, index: &PodIndex, begun: Instant) {
        self.overflow = self.overflow.filter(|due| *due > begun);
        self.open.retain(|key, ask| {
            if ask.first > begun {
                // Seen only after the request had begun: this answer may be older than the cgroup.
                return true;
            }
            if is_resolved(index, &ask.uid, key) || begun.saturating_duration_since(ask.last) > FORGET_AFTER {
                return false;
            }
            ask.attempts += 1;
            ask.due = delay(ask.attempts).map(|delay| begun + delay);
            true
        });
    }
}

fn is_resolved(index: &PodIndex, uid: &str, key: &str) -> bool {
    if uid == key {
        return index.pod(uid).is_some();
    }
    matches!(index.container(uid, key), Lookup::Named { .. })
}

/// How long after the begin of the last attempt the next is due; `None` when the regular poll will do.
fn delay(attempts: u32) -> Option<Duration> {
    let doublings = attempts.saturating_sub(EAGER_ATTEMPTS).min(16);
    let delay = SPACING * (1 << doublings);
    (delay < LONGEST_DELAY).then_some(delay)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Container, Pod};

    const UID: &str = "u";

    fn index(ids: &[&str]) -> PodIndex {
        let container = |id: &&str| Container { id: Some((*id).into()), ..Container::default() };
        let containers = ids.iter().map(container).collect();
        let pod = Pod { uid: UID.into(), containers, ..Pod::default() };
        PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], [])
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_first_ask_is_due_after_the_debounce_and_later_ones_join_it() {
        let mut asks = Asks::default();
        let now = Instant::now();
        assert!(asks.ask(UID, "a", now));
        assert!(!asks.ask(UID, "b", now + millis(50)));
        assert!(!asks.ask(UID, "a", now + millis(60)));
        assert_eq!(asks.due(), Some(now + DEBOUNCE));
    }

    #[test]
    fn an_answer_strikes_what_it_names() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "a", now);
        asks.ask(UID, "", now);
        asks.answered(&index(&["a"]), now + millis(100));
        assert!(!asks.any());
    }

    #[test]
    fn an_answer_from_before_the_ask_strikes_nothing() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "a", now);
        asks.answered(&index(&["a"]), now - millis(1));
        assert_eq!(asks.due(), Some(now + DEBOUNCE));
    }

    /// An id that is never listed is asked for eagerly, then ever more rarely, then left to the regular poll; asking
    /// again at every tick does not start over.
    #[test]
    fn asking_in_vain_tires() {
        let mut asks = Asks::default();
        let begin = Instant::now();
        let mut gaps = Vec::new();
        let mut now = begin;
        asks.ask(UID, "never", now);
        for _ in 0..100 {
            let Some(due) = asks.due() else { break };
            gaps.push(due - now);
            now = due;
            asks.answered(&index(&["a"]), now);
            asks.ask(UID, "never", now);
        }
        assert_eq!(gaps[0], DEBOUNCE);
        assert!(gaps[1..].iter().is_sorted(), "{gaps:?}");
        assert!(gaps[1..=8].iter().all(|gap| *gap == SPACING), "{gaps:?}");
        assert!(gaps.len() < 20 && *gaps.last().unwrap() < LONGEST_DELAY, "{gaps:?}");
        assert!(asks.any() && asks.due().is_none());
    }

    #[test]
    fn a_new_ask_is_due_at_once_beside_a_tired_one() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "never", now);
        for _ in 0..30 {
            asks.answered(&index(&["a"]), now);
        }
        assert!(asks.ask(UID, "b", now + millis(1)));
        assert_eq!(asks.due(), Some(now + millis(1) + DEBOUNCE));
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "never", now);
        asks.answered(&index(&["a"]), now + FORGET_AFTER);
        assert!(asks.any());
        asks.answered(&index(&["a"]), now + FORGET_AFTER + millis(1));
        assert!(!asks.any());
    }

    #[test]
    fn above_the_bound_asks_count_as_one() {
        let mut asks = Asks::default();
        let now = Instant::now();
        for number in 0..CAPACITY + 10 {
            asks.ask(UID, &format!("c{number}"), now);
        }
        assert_eq!(asks.open.len(), CAPACITY);
        assert!(asks.overflow.is_some());
        asks.answered(&index(&["a"]), now + DEBOUNCE);
        assert!(asks.overflow.is_none());
    }

    /// A list does not tell a sandbox from a container that it lacks: who asks says which it is.
    #[test]
    fn an_unlisted_cgroup_is_asked_for_until_it_is_withdrawn() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "sandbox", now);
        let container = Container { id: Some("a".into()), settled: true, ..Container::default() };
        let pod = Pod { uid: UID.into(), containers: vec![container], ..Pod::default() };
        asks.answered(&PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], []), now);
        assert!(asks.any());
        asks.withdraw("sandbox");
        assert!(!asks.any());
    }
}
