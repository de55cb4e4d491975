//! Metrics of CPU limits that burst; the values are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, counter, gauge};

pub(crate) static BURST_ENFORCING: Descriptor = gauge(
    "cpuwarden_burst_enforcing",
    &["reason"],
    "1 if the agent writes CPU bursts; 0 if it only decides, with the reason; absent if --burst is off.",
);

pub(crate) static CONTAINER_BURST_SECONDS: Descriptor = gauge(
    "cpuwarden_container_burst_seconds",
    &["namespace", "pod", "container"],
    "CPU time per period that a container may use above its quota after it has saved it (cpu.max.burst, \
     cpu.cfs_burst_us), as set by the agent; while cpuwarden_burst_enforcing is 0, what it would set. Absent for \
     containers without burst.",
);

pub(crate) static BURST_CONTAINERS: Descriptor = gauge(
    "cpuwarden_burst_containers",
    &["state"],
    "Containers by state: burst, or the reason why they have no burst: exclusive, best_effort, no_quota, \
     not_throttled, busy (too little idle time to save quota), no_gain, not_measured, not_requested, not_offered (the \
     annotation's policy is cfsQuotaBurstOnly), invalid_annotation, unknown_pod, no_kernel_support.",
);

pub(crate) static BURST_CHANGES_TOTAL: Descriptor = counter(
    "cpuwarden_burst_changes_total",
    &["action", "reason"],
    "Changes of containers' bursts by action: raise (reason throttled), end (reason as the state of \
     cpuwarden_burst_containers), reject (reason not_offered: the annotation requests quotas above the limit, by the \
     policy cfsQuotaBurstOnly or auto; auto still bursts).",
);

pub(crate) static BURST_WRITES_TOTAL: Descriptor = counter(
    "cpuwarden_burst_writes_total",
    &["setting", "result"],
    "Writes of bursts, by result: ok, with setting=burst; with setting=all: restored, repaired (another program or the kernel had \
     changed the value), conflict (another program keeps changing a pod, whose bursts stay 0), rejected (by the kernel; \
     the cgroup then has no burst), yielded (another program, such as the kubelet, had set a burst in the pod first: the \
     pod's bursts are left to it), error.",
);
