//! The history itself: the ring of frames, and the counters at the end of the latest one.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Colocation, CpuFrame, KEPT, Measure, PodName, Rates, SHOWN_VERDICTS, Verdict};
use snapshot::{ContainerGc, ContainerIdentity, CpusetRow, PodIdentity};

use crate::counters::Counters;
use crate::cpu_load::CpuLoad;
use crate::history::{SeriesRing, position};
use crate::node::{NodeValues, Totals, shared};

#[derive(Debug)]
pub(crate) struct TimelineState {
    pub(crate) node: String,
    pub(crate) containers: SeriesRing<Container>,
    pub(crate) pairs: SeriesRing<Pair>,
    /// End of each frame, milliseconds since the epoch, by position.
    pub(crate) at_ms: Vec<u64>,
    /// Length of each frame, seconds, by position.
    pub(crate) seconds: Vec<f64>,
    /// Number of the latest frame, from 1; 0 before the first.
    pub(crate) frame: u64,
    /// Time of the reading that ended the latest frame, or of the first reading.
    pub(crate) began: Option<Instant>,
    pub(crate) totals: Totals,
    /// State of the node in each frame, by position.
    pub(crate) nodes: Vec<NodeValues>,
    /// The CPUs in the latest frame, with their load.
    pub(crate) cpus: Vec<CpuFrame>,
    pub(crate) colocation: Arc<Colocation>,
    pub(crate) verdicts: Arc<Vec<Verdict>>,
    pub(crate) load: CpuLoad,
    pub(crate) watched_at: Option<Instant>,
    /// Reused for the keys of pairs.
    pub(crate) key: String,
}

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) identity: Arc<ContainerIdentity>,
    pub(crate) counters: Counters,
    pub(crate) rates: Rates,
    /// Whether nothing had changed in the last frame.
    pub(crate) is_still: bool,
    pub(crate) limit_cores: Option<f64>,
    pub(crate) request_cores: Option<f64>,
    pub(crate) cpuset: Option<Arc<CpusetRow>>,
    pub(crate) gc: Option<Arc<ContainerGc>>,
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) victim: Arc<PodIdentity>,
    pub(crate) aggressor_namespace: Arc<str>,
    pub(crate) aggressor_pod: Arc<str>,
    pub(crate) wait_ns: u64,
}

impl Pair {
    pub(crate) fn victim(&self) -> PodName {
        let PodIdentity { namespace, pod, .. } = &*self.victim;
        PodName { namespace: namespace.clone(), pod: pod.clone() }
    }

    pub(crate) fn aggressor(&self) -> PodName {
        let [namespace, pod] = [&self.aggressor_namespace, &self.aggressor_pod];
        PodName { namespace: namespace.to_string(), pod: pod.to_string() }
    }
}

impl TimelineState {
    /// An empty history for this number of containers and pairs.
    pub(crate) fn new(node: String, containers: usize, pairs: usize) -> Self {
        Self {
            node,
            containers: SeriesRing::new(containers, Measure::ALL.len()),
            pairs: SeriesRing::new(pairs, 1),
            at_ms: vec![0; KEPT],
            seconds: vec![0.0; KEPT],
            frame: 0,
            began: None,
            totals: Totals::default(),
            nodes: vec![NodeValues::default(); KEPT],
            cpus: Vec::new(),
            colocation: Arc::default(),
            verdicts: Arc::default(),
            load: CpuLoad::default(),
            watched_at: None,
            key: String::new(),
        }
    }

    pub(crate) fn set_colocation(&mut self, colocation: Colocation) {
        self.colocation = shared(&self.colocation, colocation);
    }

    pub(crate) fn set_verdicts(&mut self, mut verdicts: Vec<Verdict>) {
        verdicts.truncate(SHOWN_VERDICTS);
        self.verdicts = shared(&self.verdicts, verdicts);
    }

    /// Number of the oldest frame. The first reading is not a frame.
    pub(crate) fn oldest(&self) -> u64 {
        (self.frame + 1).saturating_sub(KEPT as u64).max(2)
    }

    /// Numbers of the frames of the last `span`.
    pub(crate) fn numbers(&self, span: Duration) -> RangeInclusive<u64> {
        let oldest = self.oldest();
        let mut seconds = 0.0;
        let mut first = self.frame + 1;
        while first > oldest && seconds < span.as_secs_f64() {
            first -= 1;
            seconds += self.seconds[position(first)];
        }
        first..=self.frame
    }
}
