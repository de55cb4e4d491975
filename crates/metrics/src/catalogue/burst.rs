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

pub(crate) static CONTAINER_SCALED_QUOTA_CORES: Descriptor = gauge(
    "cpuwarden_container_scaled_quota_cores",
    &["namespace", "pod", "container"],
    "CPU quota of a container that the agent has scaled above the limit (--burst-quota-percent; cpu.max, \
     cpu.cfs_quota_us); while cpuwarden_burst_enforcing is 0, what it would set. Absent for containers whose quota \
     is the limit.",
);

pub(crate) static BURST_CONTAINERS: Descriptor = gauge(
    "cpuwarden_burst_containers",
    &["state"],
    "Containers by state: burst, scaled (the quota), or the reason why they have no burst: exclusive, best_effort, \
     no_quota, not_throttled, busy (too little idle time to save quota), no_gain, not_measured, not_requested, \
     invalid_annotation, unknown_pod, no_kernel_support.",
);

pub(crate) static BURST_CHANGES_TOTAL: Descriptor = counter(
    "cpuwarden_burst_changes_total",
    &["action", "reason"],
    "Changes of containers' bursts by action: raise (reason throttled), end (reason as the state of \
     cpuwarden_burst_containers); and of scaled quotas: scale (reason throttled), unscale (reason overload, no_tokens, \
     changed (the limit or the request), not_measured).",
);

pub(crate) static BURST_WRITES_TOTAL: Descriptor = counter(
    "cpuwarden_burst_writes_total",
    &["setting", "result"],
    "Writes of bursts and scaled quotas, by result: ok, for each setting (burst, scaled_quota); with setting=all: \
     restored, repaired (another program or the kernel had changed the value), rejected (by the kernel; the cgroup \
     then has no burst), error.",
);
