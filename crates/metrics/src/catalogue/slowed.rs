//! Metrics of the verdicts: one row per pod that was slowed; the rows are in
//! [`AgentMetrics`](crate::AgentMetrics).

use super::{Metric, counter};
use crate::SlowedRow;

pub(crate) static SLOWED: &[Metric<SlowedRow>] = &[
    counter(
        "cpuwarden_pod_slowed_seconds_total",
        &["reason"],
        "Wall time in which the pod was slowed, by reason: neighbor (other pods ran on the CPUs for which it waited), \
         system (mostly host services or the kernel), unknown (what ran is not known, as without the trace), own_limit \
         and ancestor_limit (CPU limits), self (its own threads). Judged second by second, and counted once enough of \
         the last seconds agree. Waits for others count only for pods that sleep in between or get less CPU than they \
         request. Absent for a reason that did not occur.",
    )
    .read(|row, out| {
        for one in &row.reasons {
            out.with([one.reason]).seconds(Some(one.slowed_ns));
        }
    }),
    counter(
        "cpuwarden_pod_lost_core_seconds_total",
        &["reason"],
        "Core-seconds that the pod lost in the time of cpuwarden_pod_slowed_seconds_total. For neighbor and system per \
         CPU, the time in which a thread of the pod was queued on it and none of the pod ran there; for limits the \
         throttled time; for self and unknown a sum over threads. From eBPF, cpu.stat and schedstat.",
    )
    .read(|row, out| {
        for one in &row.reasons {
            out.with([one.reason]).seconds(Some(one.lost_ns));
        }
    }),
    counter(
        "cpuwarden_pod_slowed_by_seconds_total",
        &["aggressor_namespace", "aggressor_workload", "beyond_request"],
        "Wall time in which other pods or the host slowed the pod, by cause: the workload (a pod without a controller \
         is its own) with at least half of the lost time, without which the CPUs would have had room; \
         aggressor_namespace=system for the host, several if no workload alone is the cause. beyond_request=true: it \
         used more CPU than it requests, others did not slow it, and the agent does not restrict it. From eBPF.",
    )
    .read(|row, out| {
        for one in &row.by {
            let beyond_request = if one.beyond_request { "true" } else { "false" };
            out.with([&*one.namespace, &*one.workload, beyond_request])
                .seconds(Some(one.slowed_ns));
        }
    }),
];
