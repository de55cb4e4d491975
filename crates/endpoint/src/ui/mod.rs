//! The page and the JSON API: the last ten minutes of the node.

mod alone;
mod answers;
mod assets;
mod handlers;
mod parameters;
mod stream;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{DoctorReport, NodeTopology, PinRow};
use axum::Router;
use axum::body::Bytes;
use axum::routing::get;
use timeline::Timeline;

use crate::page::Sources;
use alone::Alone;
use stream::Streams;

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
    /// The answer of `/api/v1/recording` over the last time. May take seconds.
    pub recording: Recording,
}

/// A recording of the last time, as the bytes of a file.
pub type Recording = Box<dyn Fn(Duration) -> anyhow::Result<Vec<u8>> + Send + Sync>;

/// Time for which a view of the caller is reused: it reads files of the node.
const VIEW_FOR: Duration = Duration::from_secs(5);
/// Time for which the findings of the doctor are reused: it measures the node.
const DOCTOR_FOR: Duration = Duration::from_secs(60);

/// State of the page and of the JSON API.
pub(crate) struct Views {
    sources: Sources,
    timeline: Timeline,
    is_replay: bool,
    version: &'static str,
    revision: &'static str,
    topology: Cached<NodeTopology>,
    pins: Cached<Vec<PinRow>>,
    doctor: Cached<DoctorReport>,
    recording: Recording,
    /// Runs the doctor.
    examining: Alone,
    /// Makes recordings: they do not wait for the doctor.
    saving: Alone,
    /// Whether every request of a view needs a token.
    is_protected: bool,
    streams: Streams,
}

impl Views {
    pub(crate) fn new(ui: Ui, sources: Sources, is_protected: bool) -> Self {
        let Ui { timeline, is_replay, version, revision, topology, pins, doctor, recording } = ui;
        Self {
            sources,
            timeline,
            is_replay,
            version,
            revision,
            topology: Cached::new(topology, VIEW_FOR),
            pins: Cached::new(pins, VIEW_FOR),
            doctor: Cached::new(doctor, DOCTOR_FOR),
            recording,
            examining: Alone::default(),
            saving: Alone::default(),
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
struct Cached<T> {
    compute: View<T>,
    reused_for: Duration,
    latest: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Cached<T> {
    fn new(compute: View<T>, reused_for: Duration) -> Self {
        Self { compute, reused_for, latest: Mutex::default() }
    }

    fn get(&self) -> anyhow::Result<T> {
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

/// All routes but the event stream.
pub(crate) fn pages(views: &Arc<Views>) -> Router {
    let routes = Router::new()
        .route("/", get(assets::index))
        .route("/ui/{file}", get(assets::file))
        .route("/api/v1/openapi.json", get(assets::openapi))
        .route("/api/v1/node", get(handlers::node))
        .route("/api/v1/pods", get(handlers::pods))
        .route("/api/v1/pods/{uid}", get(handlers::pod))
        .route("/api/v1/topology", get(handlers::topology))
        .route("/api/v1/interference", get(handlers::interference))
        .route("/api/v1/pins", get(handlers::pins))
        .route("/api/v1/doctor", get(handlers::doctor))
        .route("/api/v1/recording", get(handlers::recording))
        .route("/api/v1/history", get(handlers::history))
        .route("/api/v1/frame", get(handlers::frame));
    routes.with_state(Arc::clone(views))
}

/// The event stream, which has limits of its own.
pub(crate) fn streams(views: &Arc<Views>) -> Router {
    Router::new().route("/api/v1/stream", get(stream::stream)).with_state(Arc::clone(views))
}

/// Serializes an answer. Its types have only string keys, so that it cannot fail.
fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}
