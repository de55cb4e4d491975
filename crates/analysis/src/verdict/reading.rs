//! Seconds of a node, from the counters of its snapshots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use snapshot::{
    ContainerIdentity, ContainerRow, LostTime, NodeSnapshot, NodeWaits, PodIdentity, TraceMode,
    ends_window,
};

use super::{PodSecond, Second, WorkloadName};
use crate::rules::SANDBOX;

/// Longest second. The trace publishes at its own pace: a second waits for its next poll.
const LONGEST: Duration = Duration::from_millis(2500);
/// Share of the time above which a pod does not sleep.
pub(super) const AWAKE: f64 = 0.9;
/// Time on a CPU or waiting for one between two wakeups of a pod that sleeps, seconds.
const BETWEEN_WAKEUPS: f64 = 0.05;

/// Turns snapshots into seconds.
#[derive(Debug, Default)]
pub struct SnapshotReader {
    began: Option<Instant>,
    /// The trace's poll that the last second ended with.
    waits: Arc<NodeWaits>,
    idle_ns: Option<u64>,
    steal_ns: Option<u64>,
    /// The live containers, in the order of the snapshot.
    containers: Vec<Container>,
    /// Places of their pods among those of a second, by the pod's labels.
    pods: HashMap<Box<str>, usize>,
    /// The pods with a quota, in the order of the snapshot, each with its place.
    with_quota: Vec<(Arc<PodIdentity>, Option<usize>)>,
    /// Pods of an earlier second, to reuse their memory.
    spare: Vec<PodSecond>,
    /// The trace's poll up to which lost time was read.
    lost_until: Option<Instant>,
}

/// Counters of a container.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    used: u64,
    throttled_own: u64,
    throttled_ancestor: u64,
    waited_self: u64,
    contention: u64,
}

#[derive(Debug)]
struct Container {
    identity: Arc<ContainerIdentity>,
    /// Its name.
    name: Arc<str>,
    pod: Arc<PodIdentity>,
    workload: Arc<WorkloadName>,
    /// Place of its pod among those of a second.
    pod_at: usize,
    /// `None` before the first reading, which is the baseline.
    counters: Option<Counters>,
    contention: Spread,
}

/// Contention as a rate. Its counter grows only every few seconds, when the threads are read, and
/// then by that of the interval before the last reading of the threads.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    /// Per second, without the waits for its own threads.
    rate: f64,
    /// Time since it last grew, and before that, seconds.
    age: f64,
    span: f64,
    /// CPU time used since it last grew, and before that, seconds.
    used: [f64; 2],
    /// Largest number of threads since it last grew, and before that.
    threads: [u64; 2],
}

impl SnapshotReader {
    /// Reads a snapshot. Returns the second that it ends, if any. `is_restricted` takes the UID of
    /// a pod.
    pub fn read(
        &mut self,
        snapshot: &NodeSnapshot,
        is_restricted: impl Fn(&str) -> bool,
    ) -> Option<Second> {
        let read_at = snapshot.read_at?;
        let trace = snapshot.waits.trace.map(|trace| trace.mode);
        let is_traced = trace == Some(TraceMode::Continuous);
        let seconds = match self.began {
            None => None,
            Some(began) if !ends_window(began, read_at, snapshot.interval) => return None,
            Some(began) => {
                let length = read_at.saturating_duration_since(began);
                let is_same_poll = Arc::ptr_eq(&self.waits, &snapshot.waits);
                if is_traced && is_same_poll && length < LONGEST {
                    return None;
                }
                Some(length.as_secs_f64())
            }
        };
        self.began = Some(read_at);
        self.waits = Arc::clone(&snapshot.waits);
        let length = seconds.unwrap_or_default();
        let mut pods = self.read_containers(snapshot, is_traced, length, is_restricted);
        self.read_lost(&snapshot.waits, &mut pods);
        let idle = gained(&mut self.idle_ns, snapshot.node.idle_ns);
        let steal = gained(&mut self.steal_ns, snapshot.node.steal_ns).unwrap_or_default();
        let seconds = seconds?;
        pods.iter_mut().for_each(|pod| pod.sleeps = sleeps(pod, seconds));
        let used: f64 = pods.iter().map(|pod| pod.used).sum();
        let cpus = snapshot.node.cpu_info.len() as f64;
        // Without the node's idle time all is idle that no pod used.
        let idle = idle.unwrap_or((cpus * seconds - used).max(0.0));
        let busy = (cpus * seconds - idle).max(steal);
        let stolen = if steal > 0.0 { steal / busy } else { 0.0 };
        Some(Second { seconds, stolen, trace, pods })
    }

    /// The pods, each at its place.
    fn read_containers(
        &mut self,
        snapshot: &NodeSnapshot,
        is_traced: bool,
        length: f64,
        is_restricted: impl Fn(&str) -> bool,
    ) -> Vec<PodSecond> {
        self.turn_to(snapshot);
        let mut pods = std::mem::take(&mut self.spare);
        pods.truncate(self.pods.len());
        let mut next = 0;
        for (row, container) in live(snapshot).zip(&mut self.containers) {
            if container.pod_at == next {
                if next == pods.len() {
                    pods.push(PodSecond::default());
                }
                let is_restricted = is_restricted(&row.identity.uid);
                pods[next].begin(container, row.identity.best_effort, is_restricted);
                next += 1;
            }
            let pod = &mut pods[container.pod_at];
            let now = Counters::of(row);
            let before = container.counters.replace(now);
            let gained = before.map(|before| now.since(&before)).unwrap_or_default();
            pod.add(row, &container.name, gained);
            let waited = container.contention.spread(row, gained, length);
            pod.contention += if is_traced { 0.0 } else { waited };
        }
        pods.iter_mut().for_each(PodSecond::end);
        self.find_pods_with_quota(snapshot);
        for (row, (_, place)) in snapshot.pods.iter().zip(&self.with_quota) {
            if let Some(at) = place.filter(|_| row.cpu_limit.cores().is_some()) {
                pods[at].has_pod_quota = true;
            }
        }
        pods
    }

    /// Takes back the pods of a second, for the next one.
    pub fn reuse(&mut self, second: Second) {
        self.spare = second.pods;
    }

    /// Finds the places of the pods with a quota, if other pods have one than in the snapshot before.
    fn find_pods_with_quota(&mut self, snapshot: &NodeSnapshot) {
        let known = self.with_quota.iter().map(|(identity, _)| Arc::as_ptr(identity));
        if snapshot.pods.iter().map(|row| Arc::as_ptr(&row.identity)).eq(known) {
            return;
        }
        let placed = snapshot
            .pods
            .iter()
            .map(|row| (Arc::clone(&row.identity), self.pods.get(&row.identity.labels).copied()));
        self.with_quota = placed.collect();
    }

    /// Brings the containers into the order of the snapshot. Mostly it is that of the one before, and
    /// no name is compared.
    fn turn_to(&mut self, snapshot: &NodeSnapshot) {
        let known = self.containers.iter().map(|container| Arc::as_ptr(&container.identity));
        if live(snapshot).map(|row| Arc::as_ptr(&row.identity)).eq(known) {
            return;
        }
        let before = std::mem::take(&mut self.containers).into_iter();
        let mut before: HashMap<Box<str>, Container> =
            before.map(|container| (container.identity.labels.clone(), container)).collect();
        self.pods.clear();
        self.with_quota.clear();
        for row in live(snapshot) {
            let mut container = Container::of(row, before.remove(&row.identity.labels));
            let next = self.pods.len();
            container.pod_at = *self.pods.entry(container.pod.labels.clone()).or_insert(next);
            self.containers.push(container);
        }
    }

    fn read_lost(&mut self, waits: &NodeWaits, pods: &mut [PodSecond]) {
        for row in waits.lost_since(self.lost_until) {
            if let Some(&at) = self.pods.get(&row.victim.labels) {
                let pod = &mut pods[at];
                pod.wakeups += row.wakeups;
                pod.late_wakeups += row.late_wakeups;
                pod.add_lost(row);
            }
        }
        self.lost_until = waits.lost_until().or(self.lost_until);
    }
}

fn live(snapshot: &NodeSnapshot) -> impl Iterator<Item = &ContainerRow> {
    snapshot.containers.iter().filter(|row| row.live)
}

/// Increase of a counter, seconds.
fn gained(counter: &mut Option<u64>, now: Option<u64>) -> Option<f64> {
    let before = std::mem::replace(counter, now);
    Some(seconds(now?.saturating_sub(before?)))
}

impl Counters {
    fn of(row: &ContainerRow) -> Self {
        Self {
            used: row.usage_ns.unwrap_or_default(),
            throttled_own: row.cfs.map_or(0, |cfs| cfs.throttled_ns),
            throttled_ancestor: row.throttled_ancestor_ns.unwrap_or_default(),
            waited_self: row.waits.as_ref().map_or(0, |waits| waits.self_ns),
            contention: row.contention_lower_ns.unwrap_or_default(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            used: self.used.saturating_sub(before.used),
            throttled_own: self.throttled_own.saturating_sub(before.throttled_own),
            throttled_ancestor: self.throttled_ancestor.saturating_sub(before.throttled_ancestor),
            waited_self: self.waited_self.saturating_sub(before.waited_self),
            contention: self.contention.saturating_sub(before.contention),
        }
    }
}

impl Container {
    fn of(row: &ContainerRow, before: Option<Self>) -> Self {
        match before {
            Some(known) if Arc::ptr_eq(&known.identity, &row.identity) => known,
            before => {
                let identity = Arc::clone(&row.identity);
                let (namespace, pod) = (identity.namespace.clone(), identity.pod.clone());
                let pod = Arc::new(PodIdentity::new(namespace, pod));
                let workload = Arc::new(workload(&identity, &pod));
                let (counters, contention) = before
                    .map_or_else(Default::default, |known| (known.counters, known.contention));
                let name = identity.container.as_str().into();
                Self { identity, name, pod, workload, pod_at: 0, counters, contention }
            }
        }
    }
}

impl Spread {
    /// The part of this many seconds, after these gains in them. 0 while the threads are unknown.
    fn spread(&mut self, row: &ContainerRow, gained: Counters, length: f64) -> f64 {
        self.age += length;
        self.used[0] += seconds(gained.used);
        if gained.contention > 0 {
            let waited = (seconds(gained.contention) - self.own()).max(0.0);
            let (used, threads) = ([0.0, self.used[0]], [0, self.threads[0]]);
            *self = Self { rate: waited / self.age, age: 0.0, span: self.age, used, threads };
        } else if self.age > self.span + length {
            self.rate = 0.0;
        }
        let Some(threads) = row.threads.counted() else { return 0.0 };
        self.threads[0] = self.threads[0].max(threads);
        self.rate * length
    }

    /// The most that its threads may have waited for each other: while one of them runs, each of the
    /// others may wait for it.
    fn own(&self) -> f64 {
        let others = self.threads[0].max(self.threads[1]).saturating_sub(1);
        self.used[0].max(self.used[1]) * others as f64
    }
}

impl PodSecond {
    /// Begins the second of the pod of this container; nothing has happened in it. The lists keep their
    /// memory.
    fn begin(&mut self, container: &Container, best_effort: bool, is_restricted: bool) {
        // All fields are named: a new one does not compile until it is reset here, too.
        let Self {
            pod,
            workload,
            best_effort: is_best_effort,
            is_restricted: is_pod_restricted,
            sleeps,
            request_cores,
            limit_cores,
            used,
            lost,
            contention,
            wakeups,
            late_wakeups,
            throttled_own,
            throttled_ancestor,
            has_pod_quota,
            waited_self,
            containers,
        } = self;
        if !Arc::ptr_eq(pod, &container.pod) {
            *pod = Arc::clone(&container.pod);
        }
        if !Arc::ptr_eq(workload, &container.workload) {
            *workload = Arc::clone(&container.workload);
        }
        (*is_best_effort, *is_pod_restricted) = (best_effort, is_restricted);
        (*sleeps, *has_pod_quota) = (false, false);
        (*request_cores, *limit_cores) = (Some(0.0), Some(0.0));
        (*wakeups, *late_wakeups) = (0, 0);
        for seconds in [used, contention, waited_self, throttled_own, throttled_ancestor] {
            *seconds = 0.0;
        }
        lost.clear();
        containers.clear();
    }

    /// Adds what the pod lost up to a poll; there are rarely two in a second.
    fn add_lost(&mut self, row: &LostTime) {
        let known = self.lost.len();
        for (culprit, ns) in row.by.iter().filter(|(_, ns)| *ns > 0) {
            match self.lost[..known].iter_mut().find(|(known, _)| known == culprit) {
                Some((_, lost)) => *lost += seconds(*ns),
                None => self.lost.push((culprit.clone(), seconds(*ns))),
            }
        }
    }

    /// Adds a container, and what its counters gained.
    fn add(&mut self, row: &ContainerRow, name: &Arc<str>, gained: Counters) {
        let used = seconds(gained.used);
        self.used += used;
        self.throttled_own += seconds(gained.throttled_own);
        self.throttled_ancestor += seconds(gained.throttled_ancestor);
        self.waited_self += seconds(gained.waited_self);
        self.containers.push((Arc::clone(name), used));
        // It has no fields of its own: those of the containers hold for it.
        if &**name == SANDBOX {
            return;
        }
        // A request of the pod itself replaces those of its containers, and is not in the snapshot.
        let request = row.spec.filter(|spec| !spec.pod_requests_cpu);
        let request = request.map(|_| row.request_cores.unwrap_or_default());
        self.request_cores = self.request_cores.zip(request).map(|(a, b)| a + b);
        self.limit_cores = self.limit_cores.zip(row.own_limit_cores()).map(|(a, b)| a + b);
    }

    /// Forgets the sums if the sandbox of the pod is all that is known of it.
    fn end(&mut self) {
        if self.containers.iter().all(|(name, _)| &**name == SANDBOX) {
            (self.request_cores, self.limit_cores) = (None, None);
        }
    }
}

/// Whether the pod's threads slept in between: they wanted a CPU for less than most of the time, or
/// only briefly after each wakeup.
fn sleeps(pod: &PodSecond, seconds: f64) -> bool {
    let lost: f64 = pod.lost.iter().map(|(_, lost)| lost).sum();
    let waited = pod.throttled_own + pod.throttled_ancestor + pod.waited_self + pod.contention;
    let wanted = pod.used + lost + waited;
    wanted < AWAKE * seconds || wanted < BETWEEN_WAKEUPS * pod.wakeups as f64
}

/// The workload of a pod.
fn workload(identity: &ContainerIdentity, pod: &PodIdentity) -> WorkloadName {
    let Some(owner) = &identity.workload else { return WorkloadName::pod(pod) };
    let (namespace, kind) = (identity.namespace.clone(), owner.kind.to_string());
    WorkloadName { namespace, kind, name: owner.name.to_string() }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
