//! Metrics of best-effort pods that yield; the values are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, counter, gauge};

pub(crate) static BEST_EFFORT_STEP: Descriptor = gauge(
    "cpuwarden_best_effort_step",
    &[],
    "How far best-effort pods yield CPU: 0 not at all, 1 cpu.idle is set, 2 they also have fewer CPUs, 3 they also have \
     a quota; while cpuwarden_best_effort_enforcing is 0, the step that would be taken. Absent if --best-effort is off.",
);

pub(crate) static BEST_EFFORT_STEP_SECONDS_TOTAL: Descriptor = counter(
    "cpuwarden_best_effort_step_seconds_total",
    &["step"],
    "Time in each step of cpuwarden_best_effort_step, 1 to 3.",
);

pub(crate) static BEST_EFFORT_TRANSITIONS_TOTAL: Descriptor = counter(
    "cpuwarden_best_effort_transitions_total",
    &["step", "reason"],
    "Changes of the restriction of best-effort pods, by the step after the change and the reason: harm, no_harm, \
     utilization (waits are not traced), signal_lost, hotplug.",
);

pub(crate) static BEST_EFFORT_WRITES_TOTAL: Descriptor = counter(
    "cpuwarden_best_effort_writes_total",
    &["setting", "result"],
    "Writes to cgroups of best-effort pods, by result: ok, for each setting (idle, cpus, quota); with setting=all: \
     restored, repaired (another program had changed the value), conflict (another program keeps changing a pod), error.",
);

pub(crate) static BEST_EFFORT_ENFORCING: Descriptor = gauge(
    "cpuwarden_best_effort_enforcing",
    &["reason"],
    "1 if the agent restricts best-effort pods; 0 if it only decides, with the reason; absent if --best-effort is off.",
);

pub(crate) static BEST_EFFORT_RESTRICTED: Descriptor = gauge(
    "cpuwarden_best_effort_restricted",
    &["namespace", "pod"],
    "Always 1: the agent restricts this best-effort pod.",
);

pub(crate) static BEST_EFFORT_HARM_RATIO: Descriptor = gauge(
    "cpuwarden_best_effort_harm_ratio",
    &[],
    "Largest share of its time that a latency-sensitive pod waited for best-effort pods in the last sample: wait over \
     wait plus CPU time. Absent without the trace.",
);

pub(crate) static BEST_EFFORT_BUDGET_CORES: Descriptor = gauge(
    "cpuwarden_best_effort_budget_cores",
    &[],
    "CPU that best-effort pods may use by the utilization rule: 65 % of the node's CPUs minus the use of other pods and \
     of the system in the last sample. It restricts them only where waits are not traced. Absent if --best-effort is off.",
);
