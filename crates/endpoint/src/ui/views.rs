//! Inputs of the page and the JSON API.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{DoctorReport, NodeTopology, PinRow};
use timeline::Timeline;
use timeline::recording::Origin;

use super::alone::Alone;
use super::streams::Streams;
use crate::sources::Sources;

/// A view that the caller computes, such as the topology.
pub type View<T> = Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>;

/// Sources of the page and of the JSON API.
pub struct Ui {
    /// The history.
    pub timeline: Timeline,
    /// Whether the history is that of a recording, not of a running agent.
    pub is_replay: bool,
    /// Version of the agent.
    pub version: &'static str,
    /// Commit of the agent's build.
    pub revision: &'static str,
    /// The answer of `/api/v1/topology`, without the load of the CPUs.
    pub topology: View<NodeTopology>,
    /// The answer of `/api/v1/pins`.
    pub pins: View<Vec<PinRow>>,
    /// The answer of `/api/v1/doctor`. May take seconds, and is called outside of a runtime.
    pub doctor: View<DoctorReport>,
    /// The node and the agent, for the files of `/api/v1/recording`.
    pub origin: Origin,
    /// The recording, a file or a directory, which may reach further back than the history.
    pub recorded: Option<PathBuf>,
}

/// Time for which a view of the caller is reused: it reads files of the node.
const VIEW_FOR: Duration = Duration::from_secs(5);
/// Time for which the findings of the doctor are reused: it measures the node.
const DOCTOR_FOR: Duration = Duration::from_secs(60);

/// State of the page and of the JSON API.
pub(crate) struct Views {
    pub(super) sources: Sources,
    pub(super) timeline: Timeline,
    pub(super) is_replay: bool,
    pub(super) version: &'static str,
    pub(super) revision: &'static str,
    pub(super) topology: Cached<NodeTopology>,
    pub(super) pins: Cached<Vec<PinRow>>,
    pub(super) doctor: Cached<DoctorReport>,
    pub(super) origin: Origin,
    pub(super) recorded: Option<PathBuf>,
    /// Runs the doctor.
    pub(super) examining: Alone,
    /// Reads the recording and makes files: these do not wait for the doctor.
    pub(super) reading: Alone,
    /// Whether every request of a view needs a token.
    pub(super) is_protected: bool,
    pub(super) streams: Streams,
}

impl Views {
    pub(crate) fn new(ui: Ui, sources: Sources, is_protected: bool) -> Self {
        let Ui { timeline, is_replay, version, revision, topology, pins, doctor, origin, recorded } =
            ui;
        Self {
            sources,
            timeline,
            is_replay,
            version,
            revision,
            topology: Cached::new(topology, VIEW_FOR),
            pins: Cached::new(pins, VIEW_FOR),
            doctor: Cached::new(doctor, DOCTOR_FOR),
            origin,
            recorded,
            examining: Alone::default(),
            reading: Alone::default(),
            is_protected,
            streams: Streams::default(),
        }
    }

    /// Sends each frame to the open streams, until the task is aborted.
    pub(crate) async fn send_events(self: Arc<Self>) {
        self.streams.send(&self.timeline).await;
    }

    /// Ends all open streams and admits no more.
    pub(crate) fn end_streams(&self) {
        self.streams.end();
    }
}

/// A view with the time of its latest computation.
pub(super) struct Cached<T> {
    compute: View<T>,
    reused_for: Duration,
    latest: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Cached<T> {
    fn new(compute: View<T>, reused_for: Duration) -> Self {
        Self { compute, reused_for, latest: Mutex::default() }
    }

    pub(super) fn get(&self) -> anyhow::Result<T> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, value)) = &*latest
            && at.elapsed() < self.reused_for
        {
            return Ok(value.clone());
        }
        let value = (self.compute)()?;
        *latest = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}
