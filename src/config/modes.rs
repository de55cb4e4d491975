//! Named values of the options, with their help.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// `--pod-source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PodSourceName {
    /// Any source that this node offers, without the API server unless asked for
    Auto,
    /// The kubelet's HTTPS port
    Kubelet,
    /// The kubelet's Pods API socket (Kubernetes 1.36 and later)
    #[value(name = "pods-api")]
    #[serde(rename = "pods-api")]
    PodsApi,
    /// The kubelet's read-only port
    #[value(name = "readonly")]
    ReadOnly,
    /// A watch on the API server
    #[value(name = "apiserver")]
    ApiServer,
    /// No source: series carry the pod's UID and the container's id
    None,
}

/// `--weight-rule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WeightRuleName {
    /// runc up to 1.3.1 and crun up to 1.22: 1024 shares are weight 39
    Linear,
    /// runc from 1.3.2 and crun from 1.23: 1024 shares are weight 100
    Quadratic,
}

/// `--metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MetricsPreset {
    /// Usage, limits, throttling and waits for neighbors: the metrics of the main alerts
    Lean,
    /// Everything that the shipped dashboards and alerts read
    Standard,
    /// All metrics, including the trace's histograms
    Full,
}

/// `--ui`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UiMode {
    /// Neither the page nor the JSON API
    Off,
    /// The page and the JSON API
    On,
}

/// `--sched-trace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchedTraceMode {
    /// Disabled
    Off,
    /// If the kernel allows it
    Auto,
    /// Required: exit if tracing is not possible
    On,
}

/// `--pinning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PinningMode {
    /// No planning, no writing
    Off,
    /// Plan and report only; write nothing
    Observe,
    /// Write cpusets
    Enforce,
}

/// `--nri`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NriMode {
    /// Not connected
    Off,
    /// Connected whenever the socket is there
    On,
}

/// `--inject-env`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum InjectEnvMode {
    /// No variables
    Off,
    /// Only report what annotated and injectProfiles would inject
    Observe,
    /// Pods with the annotation cpuwarden.io/inject-env
    Annotated,
    /// Pods with the annotation, and pods that injectProfiles selects
    Profiles,
}

/// `--best-effort` and `--burst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActingMode {
    /// Do nothing
    Off,
    /// Decide and report only; write nothing
    Observe,
    /// Write to the cgroups of pods
    Enforce,
}

/// `--numa-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NumaStrategyName {
    /// The fullest NUMA node with enough free CPUs first
    MostAllocated,
    /// The emptiest NUMA node first
    LeastAllocated,
    /// An even split over all NUMA nodes
    DistributeEvenly,
}
