//! Cgroups whose names are requested, and the schedule of the requests. Pure: time is an argument.
//!
//! A container's id lags behind its cgroup: the kubelet lists it after its next relist, about one
//! second. One answer may therefore not be enough. Some cgroups are never listed, so the requests
//! must become rarer. Each cgroup is requested at once, then every half second for a while, then at
//! growing delays until the regular poll suffices.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kubepods::{Lookup, PodIndex};

/// Delay before a request: several containers of a pod start together, and one request covers them
/// all.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Minimum time between requests (at most 2/s).
pub(super) const SPACING: Duration = Duration::from_millis(500);
/// The same before the first request for a pod that the runtime is creating: with a local image its
/// first container follows within some 100 ms. Each pod has one such request.
pub(super) const SPACING_AT_ONCE: Duration = Duration::from_millis(50);
/// Number of attempts at full rate before the delay doubles: enough for the kubelet's relist and a
/// slow start.
const EAGER_ATTEMPTS: u32 = 8;
/// Delay from which the regular poll takes over.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Time after which a cgroup that is no longer requested is dropped.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// Maximum number of cgroups, to bound memory; further requests share one entry.
const CAPACITY: usize = 4096;

#[derive(Debug)]
struct Ask {
    uid: Box<str>,
    attempts: u32,
    /// Whether the first attempt is for a pod whose spec is needed at once.
    at_once: bool,
    /// `None` once the regular poll suffices.
    due: Option<Instant>,
    /// First and last time that it was requested.
    first: Instant,
    last: Instant,
}

impl Ask {
    fn new(uid: &str, now: Instant, due: Instant) -> Self {
        let due = Some(due);
        Self { uid: uid.into(), attempts: 0, at_once: false, due, first: now, last: now }
    }
}

/// All unnamed cgroups with a request, by container id, or by UID for a pod's own cgroup.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: HashMap<Box<str>, Ask>,
    overflow: Option<Instant>,
}

impl Asks {
    /// Records that this cgroup has no name in the current index. An empty `container_id` requests
    /// the pod. Returns whether the next request is now due earlier.
    pub(super) fn ask(&mut self, uid: &str, container_id: &str, now: Instant) -> bool {
        let key = if container_id.is_empty() { uid } else { container_id };
        if let Some(ask) = self.open.get_mut(key) {
            ask.last = now;
            return false;
        }
        self.open(key, uid, now, now + DEBOUNCE)
    }

    /// The same for a pod whose spec is needed at once. The kubelet lists a pod before it creates
    /// it: pods that start together are in one list without a debounce.
    pub(super) fn ask_at_once(&mut self, uid: &str, now: Instant) -> bool {
        let is_sooner = !self.open.contains_key(uid) && self.open(uid, uid, now, now);
        let Some(ask) = self.open.get_mut(uid) else { return is_sooner };
        ask.last = now;
        let is_first = ask.attempts == 0;
        if is_first {
            (ask.due, ask.at_once) = (Some(now), true);
        }
        is_first
    }

    fn open(&mut self, key: &str, uid: &str, now: Instant, due: Instant) -> bool {
        let sooner = self.due().is_none_or(|present| due < present);
        if self.open.len() >= CAPACITY {
            self.overflow.get_or_insert(due);
        } else {
            self.open.insert(key.into(), Ask::new(uid, now, due));
        }
        sooner
    }

    /// Requests a pod that the current index may describe as it was. Returns whether the next
    /// request may now be due earlier.
    pub(super) fn ask_again(&mut self, uid: &str, now: Instant) -> bool {
        let Some(ask) = self.open.get_mut(uid) else { return self.ask(uid, "", now) };
        let due = now + DEBOUNCE;
        let due = ask.due.map_or(due, |present| present.min(due));
        *ask = Ask::new(uid, now, due);
        true
    }

    /// Time at which the next request is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.values().filter_map(|ask| ask.due).chain(self.overflow).min()
    }

    /// The same for pods whose spec is needed at once, which were not requested yet.
    pub(super) fn due_at_once(&self) -> Option<Instant> {
        let first = self.open.values().filter(|ask| ask.at_once && ask.attempts == 0);
        first.filter_map(|ask| ask.due).min()
    }

    /// Whether a name is requested: pods are then running, even if a list is empty.
    pub(super) fn any(&self) -> bool {
        !self.open.is_empty() || self.overflow.is_some()
    }

    /// Drops the request of this cgroup: it is gone, or known to be a sandbox.
    pub(super) fn withdraw(&mut self, container_id: &str) {
        self.open.remove(container_id);
    }

    /// Removes the requests that `index` resolves, and defers the others. `begun`: start of the
    /// request for this index.
    pub(super) fn answered(&mut self, index: &PodIndex, begun: Instant) {
        self.overflow = self.overflow.filter(|due| *due > begun);
        self.open.retain(|key, ask| {
            if ask.first > begun {
                // Found after the request had begun: this answer may be older than the cgroup.
                return true;
            }
            if is_resolved(index, &ask.uid, key)
                || begun.saturating_duration_since(ask.last) > FORGET_AFTER
            {
                return false;
            }
            ask.attempts += 1;
            ask.due = delay(ask.attempts).map(|delay| begun + delay);
            true
        });
    }
}

fn is_resolved(index: &PodIndex, uid: &str, key: &str) -> bool {
    // The runtime's report names a pod, but does not contain its spec.
    if uid == key {
        return index.pod(uid).is_some_and(|pod| pod.is_listed());
    }
    matches!(index.container(uid, key), Lookup::Named { pod, .. } if pod.is_listed())
}

/// Delay from the start of the last attempt to the next one; `None` if the regular poll suffices.
fn delay(attempts: u32) -> Option<Duration> {
    let doublings = attempts.saturating_sub(EAGER_ATTEMPTS).min(16);
    let delay = SPACING * (1 << doublings);
    (delay < MAX_DELAY).then_some(delay)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use kubepods::model::{Container, Pod};

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
    fn requests_within_the_debounce_are_joined() {
        let mut asks = Asks::default();
        let now = Instant::now();
        assert!(asks.ask(UID, "a", now));
        assert!(!asks.ask(UID, "b", now + millis(50)));
        assert!(!asks.ask(UID, "a", now + millis(60)));
        assert_eq!(asks.due(), Some(now + DEBOUNCE));
    }

    #[test]
    fn a_pod_that_is_created_is_requested_without_the_debounce() {
        let mut asks = Asks::default();
        let now = Instant::now();
        assert!(asks.ask_at_once(UID, now));
        assert_eq!(asks.due(), Some(now));
        let mut asks = Asks::default();
        asks.ask(UID, "", now);
        assert!(asks.ask_at_once(UID, now + millis(20)), "its cgroup was found before");
        assert_eq!(asks.due(), Some(now + millis(20)));
        assert_eq!(asks.due_at_once(), asks.due());
        asks.answered(&index(&[]), now + millis(30));
        assert!(!asks.any());
    }

    #[test]
    fn only_the_first_request_of_a_pod_is_for_at_once() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask("other", "", now);
        assert_eq!(asks.due_at_once(), None);
        asks.ask_at_once(UID, now);
        asks.answered(&PodIndex::default(), now + millis(10));
        assert_eq!((asks.due_at_once(), asks.due()), (None, Some(now + millis(10) + SPACING)));
        asks.ask_at_once(UID, now + millis(20));
        assert_eq!(asks.due_at_once(), None);
    }

    #[test]
    fn an_answer_removes_the_requests_that_it_names() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "a", now);
        asks.ask(UID, "", now);
        asks.answered(&index(&["a"]), now + millis(100));
        assert!(!asks.any());
    }

    #[test]
    fn a_listed_pod_is_requested_again_by_a_later_list() {
        let (mut asks, index, now) = (Asks::default(), index(&["a"]), Instant::now());
        asks.ask(UID, "", now);
        let resized = now + millis(150);
        assert!(asks.ask_again(UID, resized));
        assert_eq!(asks.due(), Some(now + DEBOUNCE), "the earlier request counts for the schedule");
        asks.answered(&index, now + DEBOUNCE);
        assert!(asks.any(), "that list was requested before the resize");
        asks.answered(&index, resized + millis(1));
        assert!(!asks.any());
        assert!(asks.ask_again(UID, resized));
        assert_eq!(asks.due(), Some(resized + DEBOUNCE));
    }

    #[test]
    fn an_answer_older_than_a_request_does_not_remove_it() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "a", now);
        asks.answered(&index(&["a"]), now - millis(1));
        assert_eq!(asks.due(), Some(now + DEBOUNCE));
    }

    /// An id that is never listed is requested at full rate, then at growing delays, then left to
    /// the regular poll. Repeated requests at every tick do not restart the schedule.
    #[test]
    fn requests_without_an_answer_become_rarer() {
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
        assert!(gaps.len() < 20 && *gaps.last().unwrap() < MAX_DELAY, "{gaps:?}");
        assert!(asks.any() && asks.due().is_none());
    }

    #[test]
    fn a_new_request_is_due_at_once_beside_a_deferred_one() {
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
    fn requests_that_expired_are_forgotten() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "never", now);
        asks.answered(&index(&["a"]), now + FORGET_AFTER);
        assert!(asks.any());
        asks.answered(&index(&["a"]), now + FORGET_AFTER + millis(1));
        assert!(!asks.any());
    }

    #[test]
    fn above_the_bound_requests_share_one_entry() {
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

    /// A list does not distinguish a sandbox from a container that it lacks: the caller withdraws a
    /// sandbox.
    #[test]
    fn an_unlisted_cgroup_is_asked_for_until_it_is_withdrawn() {
        let mut asks = Asks::default();
        let now = Instant::now();
        asks.ask(UID, "sandbox", now);
        let container = Container { id: Some("a".into()), is_final: true, ..Container::default() };
        let pod = Pod { uid: UID.into(), containers: vec![container], ..Pod::default() };
        asks.answered(&PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], []), now);
        assert!(asks.any());
        asks.withdraw("sandbox");
        assert!(!asks.any());
    }
}
