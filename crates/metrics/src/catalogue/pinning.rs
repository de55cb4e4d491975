//! Metrics of pinning; the values are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, counter, gauge};

pub(crate) static PINNED_CPUS: Descriptor = gauge(
    "cpuwarden_pinned_cpus",
    &["namespace", "pod", "cpu_qos", "bind_policy"],
    "Exclusive CPUs of a pod; while cpuwarden_pinning_enforcing is 0, the CPUs that it would get.",
);

pub(crate) static POOL_CPUS: Descriptor = gauge(
    "cpuwarden_pool_cpus",
    &["pool"],
    "CPUs of each pool: exclusive (LSE and LSR pods), share, best_effort, reserved (for the host) and kubelet \
     (assigned by its CPU manager). best_effort includes the CPUs of LSR pods.",
);

pub(crate) static EXCLUSIVE_OVERLAP_SECONDS_TOTAL: Descriptor = counter(
    "cpuwarden_exclusive_overlap_seconds_total",
    &["namespace", "pod"],
    "Upper bound of the wall time in which a cgroup of another pod, with processes in it, could run on this pod's \
     exclusive CPUs, which this agent or a claim (dynamic resource allocation, with --nri=on) has granted. Without \
     --nri=on, every new pod starts with a short overlap. From effective cpusets.",
);

pub(crate) static PIN_OPERATIONS_TOTAL: Descriptor = counter(
    "cpuwarden_pin_operations_total",
    &["operation", "result"],
    "Operations on cpusets; result shows whether the value read back is the intended one. repair: the agent restored a \
     cpuset that another program had overwritten.",
);

pub(crate) static PIN_REJECTIONS_TOTAL: Descriptor = counter(
    "cpuwarden_pin_rejections_total",
    &["reason"],
    "Pods whose request for exclusive CPUs was rejected or malformed; each pod counts once per reason.",
);

pub(crate) static PINNING_ENFORCING: Descriptor = gauge(
    "cpuwarden_pinning_enforcing",
    &["reason"],
    "1 if the agent writes cpusets; 0 if it only plans them, with the reason; absent if pinning is off.",
);

pub(crate) static PINNING_STEPPED_BACK: Descriptor = gauge(
    "cpuwarden_pinning_stepped_back",
    &["scope", "reason"],
    "Paused enforcement in spite of --pinning=enforce: number of paused pods (scope=pod), or 1 if the whole node is \
     paused (scope=node). Reasons: rewritten (another program keeps overwriting cpusets), write_failed, obstacle (see \
     cpuwarden_pinning_enforcing), pass_failed, drained (by cpuwarden drain). Absent if nothing is paused.",
);

pub(crate) static PIN_EVENTS_TOTAL: Descriptor = counter(
    "cpuwarden_pin_events_total",
    &["result"],
    "Kubernetes Events (--events), by result: sent, failed (the API server rejected the Event or did not \
     answer), dropped (the queue was full). Failed and dropped Events are lost. Repetitions of a queued Event are \
     merged into it.",
);
