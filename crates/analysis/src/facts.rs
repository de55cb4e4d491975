//! What is known of one container when its findings are made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cpu::CpuAdvice;
use crate::memory::MemoryAdvice;
use crate::pod::PodQuota;

/// A language runtime, by what decides its parallelism.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Go.
    Go,
    /// A Java virtual machine.
    Jvm,
    /// Node.js.
    Nodejs,
    /// Python.
    Python,
    /// .NET.
    Dotnet,
    /// Rust, Tokio included.
    Rust,
    /// Anything else.
    #[default]
    Unknown,
}

impl Language {
    /// The value of the label `runtime`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Jvm => "jvm",
            Self::Nodejs => "nodejs",
            Self::Python => "python",
            Self::Dotnet => "dotnet",
            Self::Rust => "rust",
            Self::Unknown => "unknown",
        }
    }
}

/// The runtime of a container's first process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Which.
    pub language: Language,
    /// Version as the runtime writes it (`go1.24.4`); `None` where it cannot be told.
    pub version: Option<String>,
    /// The program's module path (Go).
    pub module: Option<String>,
    /// The binary carries go.uber.org/automaxprocs.
    pub automaxprocs: bool,
    /// The binary carries github.com/KimMachineGun/automemlimit.
    #[serde(default)]
    pub automemlimit: bool,
    /// Threads that it will run at once; `None` where nothing tells.
    pub parallelism: Option<u32>,
    /// Where that number is from.
    pub parallelism_source: Option<String>,
    /// Settings of the initial environment and command line that bear on CPU and memory, and no others.
    pub settings: BTreeMap<String, String>,
}

/// Which list of a pod's spec a container is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// `containers`.
    #[default]
    Containers,
    /// `initContainers`, sidecars included.
    InitContainers,
    /// `ephemeralContainers`: somebody's at the keyboard, and in no workload.
    Ephemeral,
}

/// What the pod's spec says, beside the container's own resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spec {
    /// Where the container stands.
    pub place: Place,
    /// The pod itself has a CPU request (`spec.resources`).
    pub pod_requests_cpu: bool,
    /// The pod itself has a memory limit.
    pub pod_limits_memory: bool,
    /// The pod's QoS class is Guaranteed: its limits and requests must stay equal.
    pub is_guaranteed: bool,
    /// Its Koordinator class (LSE, LSR) gives whole requests CPUs of their own.
    pub is_exclusive_class: bool,
}

/// One container, over the retained windows. Absent is not zero.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Container name, for the patch.
    pub container: String,
    /// `None` while the pod is unknown, and with it the requests.
    pub spec: Option<Spec>,
    /// CPUs that it may use (cpuset).
    pub cpus: Option<u32>,
    /// CPU limit, cores; the lowest of its own and its ancestors'.
    pub limit_cores: Option<f64>,
    /// Its own, which alone its spec sets; `None` where it has none, though an ancestor may.
    pub own_limit_cores: Option<f64>,
    /// The quota of its pod's cgroup.
    pub pod: Option<PodQuota>,
    /// CPU request, cores.
    pub request_cores: Option<f64>,
    /// Share of the periods of its own quota that were throttled.
    pub throttled_share: Option<f64>,
    /// Throttled seconds a second by an ancestor's quota.
    pub ancestor_throttled_rate: Option<f64>,
    /// What other pods made its threads wait, at least, as a share of the CPU time used.
    pub contention_share: Option<f64>,
    /// Its memory files can be read.
    pub memory_is_known: bool,
    /// Memory limit, bytes.
    pub memory_limit: Option<u64>,
    /// Memory request, bytes.
    pub memory_request: Option<u64>,
    /// `uname -r`.
    pub kernel_release: String,
    /// The replay's advice.
    pub cpu: CpuAdvice,
    /// The heap's.
    pub memory: Option<MemoryAdvice>,
    /// The runtime of its first process.
    pub runtime: Option<Runtime>,
}
