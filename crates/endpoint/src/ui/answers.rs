//! Answers of the JSON API that are not plain data of the timeline.

use std::time::{Duration, SystemTime};

use advisor::ContainerReport;
use serde::Serialize;
use serde_json::Value;
use timeline::{
    Aggressor, BYTES_PER_CONTAINER, BYTES_PER_PAIR, ContainerFrame, Frame, Interference, KEPT,
    Measure, NodeFrame, PodName, Points, Selection,
};

use super::Views;

/// Number of aggressors with a series in a pod's answer.
const AGGRESSORS: usize = 6;

/// Answer of `/api/v1/node`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeAnswer {
    version: &'static str,
    revision: &'static str,
    /// Whether the seconds are those of a recording, not of a running agent.
    recording: bool,
    /// End of the latest frame, milliseconds since the epoch.
    at_ms: u64,
    node: NodeFrame,
    features: Vec<Feature>,
    agent: AgentState,
    history: HistoryState,
}

/// A feature of the kernel or of the configuration.
#[derive(Serialize)]
struct Feature {
    feature: &'static str,
    enabled: bool,
    /// Reason why it is not available; empty if it is.
    reason: String,
}

/// State of the agent itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentState {
    sample_interval_seconds: f64,
    /// Snapshots since the start.
    samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    /// Parts that do not work, as in /healthz.
    faults: Vec<String>,
    pod_sources: Vec<PodSource>,
    event_streams: usize,
}

/// A source of pod names. Its errors are in the log: they may contain addresses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodSource {
    source: &'static str,
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success_ms: Option<u64>,
}

/// Size of the history.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HistoryState {
    frames: usize,
    bytes_per_container: usize,
    bytes_per_pair: usize,
    /// Containers and pairs, per frame, for which there was no room.
    dropped: u64,
}

impl NodeAnswer {
    pub(super) fn new(views: &Views, frame: Frame) -> Self {
        let snapshot = views.sources.published.latest();
        let features = snapshot.waits.feature.iter().chain(&snapshot.node.features);
        let feature = |state: &snapshot::FeatureState| Feature {
            feature: state.feature,
            enabled: state.enabled,
            reason: state.reason.clone(),
        };
        let process = &snapshot.sampler.process;
        let silent = views.sources.watchdog.silent();
        Self {
            version: views.version,
            revision: views.revision,
            recording: views.is_replay,
            at_ms: frame.at_ms,
            node: frame.node,
            features: features.map(feature).collect(),
            agent: AgentState {
                sample_interval_seconds: snapshot.interval.as_secs_f64(),
                samples: snapshot.sequence,
                cpu_seconds: process.cpu_ns.map(|ns| ns as f64 / 1e9),
                resident_bytes: process.resident_bytes,
                faults: silent.iter().map(ToString::to_string).collect(),
                pod_sources: pod_sources(views),
                event_streams: views.streams.count(),
            },
            history: HistoryState {
                frames: KEPT,
                bytes_per_container: BYTES_PER_CONTAINER,
                bytes_per_pair: BYTES_PER_PAIR,
                dropped: views.timeline.dropped(),
            },
        }
    }
}

fn pod_sources(views: &Views) -> Vec<PodSource> {
    let source = |status: pod_sources::SourceStatus| PodSource {
        source: status.source.as_str(),
        up: status.up,
        last_success_ms: status.last_success.map(milliseconds),
    };
    views.sources.pods.status().into_iter().map(source).collect()
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Answer of `/api/v1/pods`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodsAnswer<'a> {
    at_ms: u64,
    /// Length of the frame, seconds.
    seconds: f64,
    /// Those that lose most time first.
    pods: Vec<PodRow<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodRow<'a> {
    namespace: &'a str,
    pod: &'a str,
    uid: &'a str,
    qos_class: &'a str,
    cpu_qos: &'a str,
    /// Time lost to limits, neighbors and the system, seconds per second.
    lost: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_aggressor: Option<&'a Interference>,
    containers: Vec<&'a ContainerFrame>,
}

impl<'a> PodsAnswer<'a> {
    pub(super) fn new(frame: &'a Frame) -> Self {
        let mut pods: Vec<PodRow<'a>> = Vec::new();
        // Containers of a pod are neighbors in the frame.
        for row in &frame.containers {
            match pods.last_mut().filter(|pod| pod.uid == row.uid && pod.pod == row.pod) {
                Some(pod) => pod.containers.push(row),
                None => pods.push(PodRow::new(frame, row)),
            }
        }
        for pod in &mut pods {
            pod.lost = pod.containers.iter().map(|row| row.rates.lost()).sum();
        }
        pods.sort_by(|a, b| b.lost.total_cmp(&a.lost));
        Self { at_ms: frame.at_ms, seconds: frame.seconds, pods }
    }
}

impl<'a> PodRow<'a> {
    fn new(frame: &'a Frame, row: &'a ContainerFrame) -> Self {
        let name = row.pod_name();
        let pairs = frame.interference.iter().filter(|pair| pair.victim == name);
        Self {
            namespace: &row.namespace,
            pod: &row.pod,
            uid: &row.uid,
            qos_class: &row.qos_class,
            cpu_qos: &row.cpu_qos,
            lost: 0.0,
            worst_aggressor: pairs.max_by(|a, b| a.wait.total_cmp(&b.wait)),
            containers: vec![row],
        }
    }
}

/// Answer of `/api/v1/pods/{uid}`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodAnswer {
    at_ms: u64,
    namespace: String,
    pod: String,
    uid: String,
    qos_class: String,
    cpu_qos: String,
    /// The containers in the latest frame.
    containers: Vec<ContainerFrame>,
    /// Span of the history below, seconds.
    seconds: u64,
    points: Points,
    /// Pods that made this one wait, longest first.
    aggressors: Vec<Aggressor>,
    /// Pods that waited because of this one, longest first.
    victims: Vec<Aggressor>,
    /// Reports of the advice on the containers.
    advice: Vec<ContainerReport>,
    /// Command that makes all changes of the advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_command: Option<String>,
    /// Entries of `/api/v1/pins` for this pod.
    pins: Vec<Value>,
}

impl PodAnswer {
    /// `None` if no live container has this UID.
    pub(super) fn new(views: &Views, frame: &Frame, uid: &str, span: Duration) -> Option<Self> {
        let containers: Vec<ContainerFrame> =
            frame.containers.iter().filter(|row| row.uid == uid).cloned().collect();
        let first = containers.first()?;
        let name = first.pod_name();
        let (aggressors, victims) = pairs(views, &name, span);
        let advice = views.sources.advisor.advice().containers.into_iter();
        let is_of_pod =
            |report: &ContainerReport| report.namespace == name.namespace && report.pod == name.pod;
        let advice: Vec<ContainerReport> = advice.filter(is_of_pod).collect();
        let selection = Selection { measures: &Measure::ALL, aggressors: AGGRESSORS, span };
        Some(Self {
            at_ms: frame.at_ms,
            namespace: name.namespace.clone(),
            pod: name.pod.clone(),
            uid: uid.to_owned(),
            qos_class: first.qos_class.clone(),
            cpu_qos: first.cpu_qos.clone(),
            seconds: span.as_secs(),
            points: views.timeline.points(|row| row.uid == uid, &selection),
            aggressors,
            victims,
            patch_command: advisor::pod_patch_command(&advice),
            advice,
            pins: pins(views, &name),
            containers,
        })
    }
}

/// Pairs in which the pod is the victim, and those in which it is the aggressor.
fn pairs(views: &Views, name: &PodName, span: Duration) -> (Vec<Aggressor>, Vec<Aggressor>) {
    let pairs = views.timeline.aggressors(span).into_iter();
    pairs
        .filter(|pair| pair.victim == *name || pair.aggressor == *name)
        .partition(|pair| pair.victim == *name)
}

/// The pod's entries; none if the pins cannot be read, which `/api/v1/pins` reports.
fn pins(views: &Views, name: &PodName) -> Vec<Value> {
    let is_of_pod = |pin: &&Value| {
        pin["namespace"].as_str() == Some(&name.namespace) && pin["pod"].as_str() == Some(&name.pod)
    };
    match views.pins.get() {
        Ok(Value::Array(pins)) => pins.iter().filter(is_of_pod).cloned().collect(),
        _ => Vec::new(),
    }
}
