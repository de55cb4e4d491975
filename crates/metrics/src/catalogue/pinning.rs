//! Metrics of pinning; the values are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, counter, gauge};

pub(crate) static PINNED_CPUS: Descriptor = gauge(
    "cpuwarden_pinned_cpus",
    &["namespace", "pod", "cpu_qos", "bind_policy"],
    "CPUs that a pod has for itself; while cpuwarden_pinning_enforcing is 0, those that it would get.",
);

pub(crate) static POOL_CPUS: Descriptor = gauge(
    "cpuwarden_pool_cpus",
    &["pool"],
    "CPUs of each pool: exclusive (of LSE and LSR pods), share, best_effort, reserved (for the host) and kubelet (given \
     away by its CPU manager). best_effort has those of LSR pods too.",
);

pub(crate) static EXCLUSIVE_OVERLAP_SECONDS_TOTAL: Descriptor = counter(
    "cpuwarden_exclusive_overlap_seconds_total",
    &["namespace", "pod"],
    "Wall time in which a cgroup of another pod, with processes in it, could run on this pod's own CPUs, at most; a new \
     pod begins with such a moment. From effective cpusets.",
);

pub(crate) static PIN_OPERATIONS_TOTAL: Descriptor = counter(
    "cpuwarden_pin_operations_total",
    &["operation", "result"],
    "What was done to cpusets, by whether it read back as meant. A repair is a write of what somebody else had \
     rewritten.",
);

pub(crate) static PIN_REJECTIONS_TOTAL: Descriptor = counter(
    "cpuwarden_pin_rejections_total",
    &["reason"],
    "Pods whose wish for CPUs was not granted, or that said something malformed, each counted once a reason.",
);

pub(crate) static PINNING_ENFORCING: Descriptor = gauge(
    "cpuwarden_pinning_enforcing",
    &["reason"],
    "1 where cpusets are written, 0 where they are only planned, with the reason; absent where pinning is off.",
);

pub(crate) static PINNING_STEPPED_BACK: Descriptor = gauge(
    "cpuwarden_pinning_stepped_back",
    &["scope", "reason"],
    "Where --pinning=enforce does not enforce: the number of pods that are left alone for a while (scope=pod), or 1 for \
     the node. Reasons: rewritten (another writer keeps rewriting cpusets), write_failed, obstacle (see \
     cpuwarden_pinning_enforcing), pass_failed, drained (by cpuwarden drain). Absent where everything is enforced.",
);

pub(crate) static PIN_EVENTS_TOTAL: Descriptor = counter(
    "cpuwarden_pin_events_total",
    &["result"],
    "Kubernetes Events of pinning, with --events: sent, failed (the API server refused or did not answer) or dropped (too \
     many were waiting). Failed and dropped ones are lost. What happens again while it waits is one event.",
);
