//! Named values of options, with their help.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

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

/// `--bpf-counters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BpfCountersMode {
    /// Read from the files
    Off,
    /// With the trace, if the kernel allows it
    Auto,
    /// Also without the trace, if the kernel allows it
    On,
}

/// `--gc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GcMode {
    /// Not read
    Off,
    /// Read every 10 s: of Go from the process's memory, of a JVM from its performance data
    On,
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
