//! Runtimes and advice; the values live in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, gauge};

/// Labels of a figure that holds under an objective.
const ADVISED: &[&str] = &["namespace", "pod", "container", "objective"];

pub(crate) static RUNTIME_INFO: Descriptor = gauge(
    "cpuwarden_container_runtime_info",
    &["namespace", "pod", "container", "runtime", "version"],
    "Always 1, the language runtime of the container's first process; the version is empty where it cannot be told.",
);

pub(crate) static RUNTIME_PARALLELISM: Descriptor = gauge(
    "cpuwarden_container_runtime_parallelism",
    &["namespace", "pod", "container"],
    "Threads that the language runtime will run at once, from its settings or by its version's rule; absent where \
     nothing tells.",
);

pub(crate) static RECOMMENDED_CPU_LIMIT_CORES: Descriptor = gauge(
    "cpuwarden_container_recommended_cpu_limit_cores",
    ADVISED,
    "Smallest CPU limit, of those that were tried, that keeps the share of throttled periods under the objective, by a \
     replay of the last hours; a lower bound while throttling hides demand.",
);

pub(crate) static RECOMMENDED_CPU_BURST_SECONDS: Descriptor = gauge(
    "cpuwarden_container_recommended_cpu_burst_seconds",
    ADVISED,
    "Smallest burst (cpu.max.burst) that does so at the limit in force; absent where none is needed or none suffices.",
);

pub(crate) static RECOMMENDED_MEMORY_SOFT_LIMIT_BYTES: Descriptor = gauge(
    "cpuwarden_container_recommended_memory_soft_limit_bytes",
    ADVISED,
    "For GOMEMLIMIT and its like: 70 % of the memory limit, but not under 1.25 times the live set.",
);
