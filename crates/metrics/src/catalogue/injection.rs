//! Metrics of the environment that is injected through the Node Resource Interface; the values are
//! in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, counter, gauge};

pub(crate) static NRI_CONNECTED: Descriptor = gauge(
    "cpuwarden_nri_connected",
    &["runtime", "version"],
    "1 while the container runtime calls the agent for each new container, else 0, with its name and version; absent \
     without --nri=on. While it is 0, containers start without injected variables, pinning places them only after \
     their start, and bursts are lowered only after a smaller limit was rejected.",
);

pub(crate) static NRI_DISCONNECTED_SECONDS_TOTAL: Descriptor = counter(
    "cpuwarden_nri_disconnected_seconds_total",
    &[],
    "Time without a connection to the container runtime since the agent's start, counted at each attempt to connect.",
);

pub(crate) static NRI_RECONNECTIONS_TOTAL: Descriptor = counter(
    "cpuwarden_nri_reconnections_total",
    &[],
    "Connections to the container runtime after the first one.",
);

pub(crate) static NRI_EMPTY_ANSWERS_TOTAL: Descriptor = counter(
    "cpuwarden_nri_empty_answers_total",
    &["method"],
    "Calls of the container runtime that the agent answered without an adjustment after a fault of its own (a late \
     answer, a panic, a message that cannot be decoded); the log contains the reason.",
);

pub(crate) static ENV_INJECTIONS_MISSED_TOTAL: Descriptor = counter(
    "cpuwarden_env_injections_missed_total",
    &["reason"],
    "Containers that started without the variables that their pod asks for, by reason: pod_not_listed (the kubelet's \
     list did not contain the pod yet, so the container may have been an init container; name it in the annotation \
     cpuwarden.io/inject-env-containers), creations_failed (three creations with variables failed: another NRI plugin \
     may set one of them). Absent unless --inject-env is annotated or profiles.",
);

pub(crate) static CONTAINER_INJECTED_ENV_INFO: Descriptor = gauge(
    "cpuwarden_container_injected_env_info",
    &["namespace", "pod", "container", "variable", "value", "status"],
    "Always 1: environment variable of a running container by status: injected (at its start), stale (injected, but \
     a later resize calls for another value; restart the pod), observed (would be injected at its next start).",
);
