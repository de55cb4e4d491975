//! Builds frames from snapshots, and keeps the last ten minutes.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use api::{
    Aggressor, Colocation, ContainerFrame, CpuFrame, Frame, KEPT, Measure, PodName, Points, Rates,
};
use snapshot::{
    ContainerIdentity, ContainerRow, CpusetRow, NodeSnapshot, NodeWaits, Published, ends_window,
};
use tokio::sync::{Notify, watch};

use crate::counters::Counters;
use crate::cpus::CpuLoad;
use crate::history::{SeriesRing, position};
use node::{NodeValues, Totals};

/// Longest round of [`Timeline::follow`]: without a snapshot it only reports that it is alive.
pub const ROUND: Duration = Duration::from_secs(10);

/// Time after the last request for a frame in which the load of each CPU is still read.
const WATCHED_FOR: Duration = Duration::from_secs(5);

/// Maximum number of containers with a history, for a node.
pub const MAX_CONTAINERS: usize = 1024;

/// Maximum number of pairs of victim and aggressor with a history, for a node: about seven for each
/// pod that waits, which are five pods, the system, and all others.
pub const MAX_PAIRS: usize = 2048;

/// Size of the history, and what the frames need besides the snapshots.
#[derive(Debug, Clone)]
pub struct TimelineConfig {
    /// Name of the node; empty if unknown.
    pub node: String,
    /// Mount point of procfs.
    pub proc_root: PathBuf,
    /// Maximum number of containers with a history. Memory is only used for those that exist.
    pub containers: usize,
    /// Maximum number of pairs of victim and aggressor with a history.
    pub pairs: usize,
}

/// Part of the history.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// Measures of the containers.
    pub measures: &'a [Measure],
    /// Maximum number of aggressors of each pod.
    pub aggressors: usize,
    /// The last time.
    pub span: Duration,
}

/// The last ten minutes. Cheap to clone: all clones share one history.
#[derive(Debug, Clone)]
pub struct Timeline {
    state: Arc<Mutex<State>>,
    frame: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    node: String,
    containers: SeriesRing<Container>,
    pairs: SeriesRing<Pair>,
    /// End of each frame, milliseconds since the epoch, by position.
    at_ms: Vec<u64>,
    /// Length of each frame, seconds, by position.
    seconds: Vec<f64>,
    /// Number of the latest frame, from 1; 0 before the first.
    frame: u64,
    /// Time of the reading that ended the latest frame, or of the first reading.
    began: Option<Instant>,
    totals: Totals,
    /// State of the node in each frame, by position.
    nodes: Vec<NodeValues>,
    /// The CPUs in the latest frame, with their load.
    cpus: Vec<CpuFrame>,
    colocation: Arc<Colocation>,
    load: CpuLoad,
    watched_at: Option<Instant>,
    /// Reused for the keys of pairs.
    key: String,
}

#[derive(Debug)]
struct Container {
    identity: Arc<ContainerIdentity>,
    counters: Counters,
    rates: Rates,
    limit_cores: Option<f64>,
    request_cores: Option<f64>,
    cpuset: Option<Arc<CpusetRow>>,
}

#[derive(Debug)]
struct Pair {
    victim: PodName,
    aggressor: PodName,
    wait_ns: u64,
}

impl Timeline {
    /// Reserves the memory of the history.
    #[must_use]
    pub fn new(config: TimelineConfig) -> Self {
        let state = State {
            node: config.node,
            containers: SeriesRing::new(config.containers, Measure::ALL.len()),
            pairs: SeriesRing::new(config.pairs, 1),
            at_ms: vec![0; KEPT],
            seconds: vec![0.0; KEPT],
            frame: 0,
            began: None,
            totals: Totals::default(),
            nodes: vec![NodeValues::default(); KEPT],
            cpus: Vec::new(),
            colocation: Arc::default(),
            load: CpuLoad::new(&config.proc_root),
            watched_at: None,
            key: String::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), frame: watch::Sender::new(0) }
    }

    /// Adds the latest snapshot whenever one is published, until the task is aborted. Calls `beat`
    /// after each round with the time in which the next one is due.
    pub async fn follow(
        self,
        published: Published<NodeSnapshot>,
        is_published: Arc<Notify>,
        beat: impl Fn(Duration) + Send,
    ) {
        loop {
            if tokio::time::timeout(ROUND, is_published.notified()).await.is_ok() {
                self.observe(&published.latest());
            }
            beat(ROUND);
        }
    }

    /// Adds a snapshot. Returns the number of the frame that it ended, if any: a frame is at least
    /// a second long.
    pub fn observe(&self, snapshot: &NodeSnapshot) -> Option<u64> {
        let frame = self.lock().observe(snapshot)?;
        self.frame.send_replace(frame);
        Some(frame)
    }

    /// Sets the actions of co-location, from the next frame on.
    pub fn set_colocation(&self, colocation: Colocation) {
        self.lock().set_colocation(colocation);
    }

    /// Adds a frame of a recording. A timeline of recorded frames observes no snapshots.
    pub fn add(&self, frame: &Frame) {
        let number = self.lock().add_frame(frame);
        self.frame.send_replace(number);
    }

    /// Number of the latest frame, 0 before the first: changes with each frame.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.frame.subscribe()
    }

    /// The latest frame; `None` before the first. While it is requested, the load of each CPU is
    /// read, too.
    #[must_use]
    pub fn latest(&self) -> Option<Frame> {
        let mut state = self.lock();
        state.watched_at = Some(Instant::now());
        state.latest_frame()
    }

    /// The frames of the last `span`, oldest first. Values of containers have three digits; the
    /// load of the CPUs is only in the latest frame. Each frame is made when it is taken: all of
    /// them are large, and the next snapshot must not wait for them.
    pub fn frames(&self, span: Duration) -> impl Iterator<Item = Frame> + use<> {
        let numbers = self.lock().numbers(span);
        self.numbered(numbers)
    }

    /// The frames after number `last`, as [`Timeline::frames`]; `last` becomes the number of the
    /// latest one. While they are requested, the load of each CPU is read, too.
    pub fn frames_after(&self, last: &mut u64) -> impl Iterator<Item = Frame> + use<> {
        let mut state = self.lock();
        state.watched_at = Some(Instant::now());
        let numbers = state.oldest().max(*last + 1)..=state.frame;
        *last = state.frame;
        drop(state);
        self.numbered(numbers)
    }

    /// The frames with these numbers that are still in the history.
    fn numbered(&self, numbers: RangeInclusive<u64>) -> impl Iterator<Item = Frame> + use<> {
        let timeline = self.clone();
        numbers.filter_map(move |number| timeline.lock().frame(number))
    }

    /// Series of the containers that `select` accepts, and of their worst aggressors.
    #[must_use]
    pub fn points(
        &self,
        select: impl Fn(&ContainerIdentity) -> bool,
        selection: &Selection<'_>,
    ) -> Points {
        self.lock().points(select, selection)
    }

    /// Waits over the last `span` by victim and aggressor, longest first.
    #[must_use]
    pub fn aggressors(&self, span: Duration) -> Vec<Aggressor> {
        self.lock().aggressors(span)
    }

    /// Number of containers and pairs that did not fit into the history.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let state = self.lock();
        state.containers.dropped + state.pairs.dropped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // All fields are valid at any time: at worst a frame lacks some values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn observe(&mut self, snapshot: &NodeSnapshot) -> Option<u64> {
        let (taken, read_at) = (snapshot.taken?, snapshot.read_at?);
        let seconds = match self.began {
            Some(began) if !ends_window(began, read_at, snapshot.interval) => return None,
            Some(began) => read_at.saturating_duration_since(began).as_secs_f64(),
            // The first snapshot is the baseline of the counters.
            None => 0.0,
        };
        let is_first = self.began.replace(read_at).is_none();
        self.frame += 1;
        self.containers.advance(self.frame);
        self.pairs.advance(self.frame);
        let position = position(self.frame);
        self.at_ms[position] = milliseconds(taken);
        self.seconds[position] = seconds;
        let traced = snapshot.waits.trace.is_some();
        for row in snapshot.containers.iter().filter(|row| row.live) {
            self.add_container(row, traced, seconds);
        }
        self.add_pairs(&snapshot.waits, is_first, seconds);
        self.add_node(snapshot, seconds);
        (!is_first).then_some(self.frame)
    }

    fn add_container(&mut self, row: &ContainerRow, traced: bool, seconds: f64) {
        let now = Counters::of(row, traced);
        let frame = self.frame;
        let is_same = |kept: &Container| Arc::ptr_eq(&kept.identity, &row.identity);
        let known = self.containers.next_slot(is_same);
        let new = || Container::new(row, now);
        let search = || self.containers.slot(&row.identity.labels, frame, new);
        let Some(at) = known.or_else(search) else { return };
        let was_read = self.containers.last(at) + 1 == frame;
        let Some(container) = self.containers.state_mut(at) else { return };
        let before = std::mem::replace(&mut container.counters, now);
        let rates = if was_read { before.rates_until(&now, seconds) } else { Rates::default() };
        container.update(row, rates);
        let values = Measure::ALL.map(|measure| measure.of(&rates, row.cpu_limit.cores()));
        self.containers.set(at, frame, values);
    }

    fn add_pairs(&mut self, waits: &NodeWaits, is_first: bool, seconds: f64) {
        let mut key = std::mem::take(&mut self.key);
        for row in &waits.interference {
            key.clear();
            // Writing to a string cannot fail.
            let _ = write!(
                key,
                "{}\n{}\n{}",
                row.victim.labels, row.aggressor_namespace, row.aggressor_pod
            );
            let new = || Pair {
                victim: PodName {
                    namespace: row.victim.namespace.clone(),
                    pod: row.victim.pod.clone(),
                },
                aggressor: PodName {
                    namespace: row.aggressor_namespace.to_string(),
                    pod: row.aggressor_pod.to_string(),
                },
                // A pair appears with its first wait, which belongs to this frame.
                wait_ns: if is_first { row.wait_ns } else { 0 },
            };
            let Some(at) = self.pairs.slot(&key, self.frame, new) else { continue };
            let Some(pair) = self.pairs.state_mut(at) else { continue };
            let waited = row.wait_ns.saturating_sub(pair.wait_ns) as f64 / 1e9;
            pair.wait_ns = row.wait_ns;
            let rate = if seconds > 0.0 { waited / seconds } else { 0.0 };
            self.pairs.set(at, self.frame, [Some(rate)]);
        }
        self.key = key;
    }
}

impl Container {
    fn new(row: &ContainerRow, counters: Counters) -> Self {
        Self {
            identity: Arc::clone(&row.identity),
            counters,
            rates: Rates::default(),
            limit_cores: row.cpu_limit.cores(),
            request_cores: row.request_cores,
            cpuset: row.cpuset.clone(),
        }
    }

    fn update(&mut self, row: &ContainerRow, rates: Rates) {
        if !Arc::ptr_eq(&self.identity, &row.identity) {
            self.identity = Arc::clone(&row.identity);
        }
        self.rates = rates;
        self.limit_cores = row.cpu_limit.cores();
        self.request_cores = row.request_cores;
        self.cpuset.clone_from(&row.cpuset);
    }

    fn frame(&self, rates: Rates) -> ContainerFrame {
        let identity = &*self.identity;
        ContainerFrame {
            namespace: identity.namespace.clone(),
            pod: identity.pod.clone(),
            container: identity.container.clone(),
            uid: identity.uid.clone(),
            qos_class: identity.qos_class.clone(),
            cpu_qos: identity.cpu_qos.clone(),
            limit_cores: self.limit_cores,
            request_cores: self.request_cores,
            cpus: self.cpuset.as_ref().map(|cpuset| cpuset.cpus.clone()),
            rates,
        }
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

mod node;
mod queries;
mod recorded;
#[cfg(test)]
mod tests;
