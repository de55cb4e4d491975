//! Answers of the JSON API about the node and its pods.

use serde::{Deserialize, Serialize};

use crate::advice::ContainerReport;
use crate::frame::{ContainerFrame, Frame, Interference, NodeFrame};
use crate::pins::PinRow;
use crate::points::{InterferenceTotal, Points};
use crate::verdict::Verdict;

/// Answer of `/api/v1/node`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAnswer {
    /// Version of the agent.
    pub version: String,
    /// Commit of the agent's build.
    pub revision: String,
    /// Whether the seconds are those of a recording, not of a running agent.
    pub recording: bool,
    /// End of the latest frame, milliseconds since the epoch.
    pub at_ms: u64,
    /// The node in the latest frame.
    pub node: NodeFrame,
    /// Features of the kernel and of the configuration.
    pub features: Vec<Feature>,
    /// The agent itself.
    pub agent: AgentFigures,
    /// Size of the history.
    pub history: HistorySize,
}

/// A feature of the kernel or of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// Name of the feature.
    pub feature: String,
    /// Whether it is available.
    pub enabled: bool,
    /// Reason why it is not available; empty if it is.
    pub reason: String,
}

/// Figures of the agent itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFigures {
    /// Time between two samples, seconds.
    pub sample_interval_seconds: f64,
    /// Snapshots since the start.
    pub samples: u64,
    /// CPU time of the agent, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Resident memory of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Parts that do not work, as in /healthz.
    pub faults: Vec<String>,
    /// Sources of pod names.
    pub pod_sources: Vec<SourceHealth>,
    /// Open event streams.
    pub event_streams: usize,
}

/// A source of pod names. Its errors are in the log: they may contain addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceHealth {
    /// Name of the source.
    pub source: String,
    /// Whether its latest answer was usable.
    pub up: bool,
    /// Time of its latest usable answer, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_ms: Option<u64>,
}

/// Size of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistorySize {
    /// Maximum number of frames.
    pub frames: usize,
    /// Memory of one container's full history.
    pub bytes_per_container: usize,
    /// Memory of one pair's full history.
    pub bytes_per_pair: usize,
    /// Containers and pairs, per frame, for which there was no room.
    pub dropped: u64,
    /// Earliest time that this client can request, milliseconds since the epoch: that of the
    /// recording, or the start of the last ten minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_ms: Option<u64>,
}

/// Sums over the containers of a node, over time. The lists are equally long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// End of each span, milliseconds since the epoch, oldest first.
    pub at_ms: Vec<u64>,
    /// Length of each span, seconds.
    pub seconds: Vec<f64>,
    /// Time lost to limits, neighbors and the system, seconds per second.
    pub lost: Vec<f64>,
    /// CPU use, cores.
    pub usage_cores: Vec<Option<f64>>,
    /// Share of the time in which some thread waited for a CPU, 0 to 1.
    pub pressure: Vec<Option<f64>>,
}

/// Answer of `/api/v1/pods`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsAnswer {
    /// End of the frame, milliseconds since the epoch.
    pub at_ms: u64,
    /// Length of the frame, seconds.
    pub seconds: f64,
    /// The pods that are slowed, in the order of the victims, then those that lose most time.
    pub pods: Vec<PodSummary>,
}

/// A pod in one frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSummary {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Kubernetes QoS class.
    pub qos_class: String,
    /// Koordinator QoS class; empty if the pod has none.
    pub cpu_qos: String,
    /// Time lost to limits, neighbors and the system, seconds per second.
    pub lost: f64,
    /// The verdict, if the pod is slowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The pod that made this one wait longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_aggressor: Option<Interference>,
    /// The containers of the pod.
    pub containers: Vec<ContainerFrame>,
}

impl From<Frame> for PodsAnswer {
    fn from(frame: Frame) -> Self {
        let mut pods: Vec<PodSummary> = Vec::new();
        // Containers of a pod are neighbors in the frame.
        for row in frame.containers {
            match pods.last_mut().filter(|pod| pod.uid == row.uid && pod.pod == row.pod) {
                Some(pod) => pod.containers.push(row),
                None => pods.push(PodSummary::new(&frame.interference, row)),
            }
        }
        for pod in &mut pods {
            pod.lost = pod.containers.iter().map(|row| row.rates.lost()).sum();
        }
        let place = |pod: &PodSummary| {
            let is_of =
                |one: &Verdict| one.victim.namespace == pod.namespace && one.victim.pod == pod.pod;
            frame.verdicts.iter().position(is_of).unwrap_or(usize::MAX)
        };
        for pod in &mut pods {
            pod.verdict = frame.verdicts.get(place(pod)).cloned();
        }
        pods.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| b.lost.total_cmp(&a.lost)));
        Self { at_ms: frame.at_ms, seconds: frame.seconds, pods }
    }
}

impl PodSummary {
    fn new(interference: &[Interference], row: ContainerFrame) -> Self {
        let name = row.pod_name();
        let pairs = interference.iter().filter(|pair| pair.victim == name);
        Self {
            namespace: row.namespace.clone(),
            pod: row.pod.clone(),
            uid: row.uid.clone(),
            qos_class: row.qos_class.clone(),
            cpu_qos: row.cpu_qos.clone(),
            lost: 0.0,
            verdict: None,
            worst_aggressor: pairs.max_by(|a, b| a.wait.total_cmp(&b.wait)).cloned(),
            containers: vec![row],
        }
    }
}

/// Answer of `/api/v1/pods/{uid}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodAnswer {
    /// End of the latest frame, milliseconds since the epoch.
    pub at_ms: u64,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Kubernetes QoS class.
    pub qos_class: String,
    /// Koordinator QoS class; empty if the pod has none.
    pub cpu_qos: String,
    /// The containers in the latest frame.
    pub containers: Vec<ContainerFrame>,
    /// Span of the history below, seconds.
    pub seconds: u64,
    /// The containers and their worst aggressors over the span.
    pub points: Points,
    /// Pods that made this one wait, longest first.
    pub aggressors: Vec<InterferenceTotal>,
    /// Pods that waited because of this one, longest first.
    pub victims: Vec<InterferenceTotal>,
    /// Reports of the advice on the containers.
    pub advice: Vec<ContainerReport>,
    /// Command that makes all changes of the advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_command: Option<String>,
    /// Entries of `/api/v1/pins` for this pod.
    pub pins: Vec<PinRow>,
}
