//! Metrics of advice: one row per container; the rows are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Metric, Preset, gauge};
use crate::AdviceRow;

/// Label of values that depend on an objective.
const ADVISED: &[&str] = &["objective"];

pub(crate) static ADVICE: &[Metric<AdviceRow>] = &[
    gauge(
        "cpuwarden_container_runtime_info",
        &["runtime", "version"],
        "Always 1: language runtime of the container's program; version is empty if it cannot be determined.",
    )
    .from(Preset::Full)
    .read(|row, out| {
        if let Some(runtime) = row.runtime {
            out.with([runtime, row.version.as_deref().unwrap_or_default()]).count(Some(1));
        }
    }),
    gauge(
        "cpuwarden_container_runtime_parallelism",
        &[],
        "Threads that the language runtime runs at once, from its settings or the rule of its version; absent if \
         unknown.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.count(row.parallelism.map(u64::from))),
    gauge(
        "cpuwarden_container_recommended_cpu_limit_cores",
        &["objective", "bound"],
        "Smallest CPU limit that keeps the share of throttled periods within the objective in a replay of the last six \
         hours, among the limits that were tried. bound=exact: this limit is enough. bound=lower: a higher limit may \
         be needed, because a quota throttled the container or the arrival time of some of its work is unknown.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.with([&*row.objective, row.limit_bound]).number(row.limit_cores)),
    gauge(
        "cpuwarden_container_recommended_cpu_burst_seconds",
        ADVISED,
        "Smallest burst (cpu.max.burst) that meets the objective at the limit in force; absent if the limit meets it \
         without a burst, or if no burst is large enough.",
    )
    .from(Preset::Full)
    .read(|row, out| out.with([&*row.objective]).number(row.burst_seconds)),
    gauge(
        "cpuwarden_container_recommended_memory_soft_limit_bytes",
        ADVISED,
        "Recommended soft memory limit, e.g. for GOMEMLIMIT: 70 % of the memory limit, but at least 1.25 times the \
         live set.",
    )
    .from(Preset::Full)
    .read(|row, out| out.with([&*row.objective]).count(row.memory_soft_limit_bytes)),
];
