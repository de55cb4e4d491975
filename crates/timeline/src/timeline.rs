//! Builds frames from snapshots, and keeps the last ten minutes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{Colocation, Frame, InterferenceTotal, Points, Verdict};
use snapshot::{ContainerIdentity, CpuTimes, NodeSnapshot, Published};
use tokio::sync::{Notify, watch};

use crate::history::position;
use crate::queries::Selection;
use crate::state::TimelineState;

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
    /// Maximum number of containers with a history. Memory is only used for those that exist.
    pub containers: usize,
    /// Maximum number of pairs of victim and aggressor with a history.
    pub pairs: usize,
}

/// The last ten minutes. Cheap to clone: all clones share one history.
#[derive(Debug, Clone)]
pub struct Timeline {
    state: Arc<Mutex<TimelineState>>,
    frame: watch::Sender<u64>,
}

impl Timeline {
    /// Creates an empty history.
    #[must_use]
    pub fn new(config: TimelineConfig) -> Self {
        let state = TimelineState::new(config.node, config.containers, config.pairs);
        Self { state: Arc::new(Mutex::new(state)), frame: watch::Sender::new(0) }
    }

    /// Adds the latest snapshot whenever one is published, until the task is aborted. While a view
    /// is open, `cpu_times` reads the cumulative times of the CPUs at the end of each frame. Calls
    /// `beat` after each round with the time in which the next one is due.
    pub async fn follow(
        self,
        published: Published<NodeSnapshot>,
        is_published: Arc<Notify>,
        cpu_times: impl Fn() -> Vec<CpuTimes> + Send,
        beat: impl Fn(Duration) + Send,
    ) {
        loop {
            if tokio::time::timeout(ROUND, is_published.notified()).await.is_ok() {
                self.observe_with(&published.latest(), &cpu_times);
            }
            beat(ROUND);
        }
    }

    /// Adds a snapshot. Returns the number of the frame that it ended, if any: a frame is at least
    /// a second long.
    pub fn observe(&self, snapshot: &NodeSnapshot) -> Option<u64> {
        self.observe_with(snapshot, Vec::new)
    }

    /// As [`Timeline::observe`], with the load of the CPUs if a view needs it.
    fn observe_with(
        &self,
        snapshot: &NodeSnapshot,
        cpu_times: impl Fn() -> Vec<CpuTimes>,
    ) -> Option<u64> {
        let needs_load = {
            let state = self.lock();
            let is_watched = state.watched_at.is_some_and(|at| at.elapsed() < WATCHED_FOR);
            is_watched && state.ends_frame(snapshot)
        };
        // The views do not wait for the kernel.
        let cpu_times = if needs_load { cpu_times() } else { Vec::new() };
        let frame = self.lock().observe(snapshot, cpu_times)?;
        self.frame.send_replace(frame);
        Some(frame)
    }

    /// Sets the actions of co-location, from the next frame on.
    pub fn set_colocation(&self, colocation: Colocation) {
        self.lock().set_colocation(colocation);
    }

    /// Sets the verdicts about the pods, from the next frame on.
    pub fn set_verdicts(&self, verdicts: Vec<Verdict>) {
        self.lock().set_verdicts(verdicts);
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

    /// The frames that end after `after_ms` and not after `until_ms`, as [`Timeline::frames`].
    pub fn frames_between(
        &self,
        after_ms: u64,
        until_ms: u64,
    ) -> impl Iterator<Item = Frame> + use<> {
        let state = self.lock();
        let is_wanted = |number: &u64| {
            let at_ms = state.at_ms[position(*number)];
            at_ms > after_ms && at_ms <= until_ms
        };
        let numbers: Vec<u64> = (state.oldest()..=state.frame).filter(is_wanted).collect();
        drop(state);
        self.numbered(numbers.into_iter())
    }

    /// Start of the oldest frame and end of the latest one, milliseconds since the epoch; `None`
    /// before the first frame.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let state = self.lock();
        let (oldest, latest) = (position(state.oldest()), position(state.frame));
        let length_ms = (state.seconds[oldest] * 1000.0).round() as u64;
        (state.oldest() <= state.frame)
            .then(|| (state.at_ms[oldest].saturating_sub(length_ms), state.at_ms[latest]))
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
    fn numbered<I: Iterator<Item = u64>>(
        &self,
        numbers: I,
    ) -> impl Iterator<Item = Frame> + use<I> {
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
    pub fn aggressors(&self, span: Duration) -> Vec<InterferenceTotal> {
        self.lock().aggressors(span)
    }

    /// Number of containers and pairs that did not fit into the history.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let state = self.lock();
        state.containers.dropped + state.pairs.dropped
    }

    fn lock(&self) -> MutexGuard<'_, TimelineState> {
        // All fields are valid at any time: at worst a frame lacks some values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
