//! Answers about a span of the history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::Measure;
use crate::pod_name::PodName;

/// Series of several containers, and of the pods that made them wait, over the same frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Points {
    /// End of each frame, milliseconds since the epoch, oldest first.
    pub at_ms: Vec<u64>,
    /// Length of each frame, seconds.
    pub seconds: Vec<f64>,
    /// One entry per container, sorted by namespace, pod and container.
    pub containers: Vec<Series>,
    /// Pairs whose victim is a pod of these containers, sorted by victim, longest first.
    #[serde(default)]
    pub pairs: Vec<PairSeries>,
}

/// Series of one container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// UID of the pod.
    pub uid: String,
    /// One value per frame and measure; `None` where the value was not available. Measures without
    /// any value are omitted.
    pub measures: BTreeMap<Measure, Vec<Option<f64>>>,
}

/// Waits of one pod because of another, frame by frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PairSeries {
    /// The pod that waited.
    pub victim: PodName,
    /// The pod that was running.
    pub aggressor: PodName,
    /// Thread-seconds of waiting per second, one value per frame; `None` where waits were not
    /// traced.
    pub wait: Vec<Option<f64>>,
}

/// Time that one pod waited because of another, over a span.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterferenceTotal {
    /// The pod that waited.
    pub victim: PodName,
    /// The pod that was running.
    pub aggressor: PodName,
    /// Thread-seconds of waiting over the span.
    pub seconds: f64,
}
