//! Metrics of advice: one row per container; the rows are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Metric, Preset, gauge};
use crate::AdviceRow;

/// Label of values that depend on an objective.
const ADVISED: &[&str] = &["objective"];

pub(crate) static ADVICE: &[Metric<AdviceRow>] = &[
    gauge(
        "cpuwarden_container_runtime_info",
        &["runtime", "version"],
        "Always 1, the language runtime of the container's program; the version is empty where it cannot be told.",
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
        "Threads that the language runtime will run at once, from its settings or by its version's rule; absent where \
         nothing tells.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.count(row.parallelism.map(u64::from))),
    gauge(
        "cpuwarden_container_recommended_cpu_limit_cores",
        &["objective", "bound"],
        "Smallest CPU limit, of those that were tried, that keeps the share of throttled periods under the objective, by \
         a replay of the last six hours. Bound lower: a higher limit may be needed, because a quota throttled or it is not \
         known when the work of some windows came up; bound exact: it suffices.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.with([&*row.objective, row.limit_bound]).number(row.limit_cores)),
    gauge(
        "cpuwarden_container_recommended_cpu_burst_seconds",
        ADVISED,
        "Smallest burst (cpu.max.burst) that does so at the limit in force; absent where none is needed or none suffices.",
    )
    .from(Preset::Full)
    .read(|row, out| out.with([&*row.objective]).number(row.burst_seconds)),
    gauge(
        "cpuwarden_container_recommended_memory_soft_limit_bytes",
        ADVISED,
        "For GOMEMLIMIT and its like: 70 % of the memory limit, but not under 1.25 times the live set.",
    )
    .from(Preset::Full)
    .read(|row, out| out.with([&*row.objective]).count(row.memory_soft_limit_bytes)),
];
