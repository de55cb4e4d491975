//! Metrics of pods: one snapshot row per pod whose own cgroup has, or had, a CFS quota.

use snapshot::PodRow;

use super::container::window_histogram;
use super::{Metric, Preset, counter, gauge, histogram};

pub(crate) static POD: &[Metric<PodRow>] = &[
    counter(
        "cpuwarden_pod_cfs_periods_total",
        &[],
        "Enforcement periods of the pod cgroup's own quota in which the pod had runnable tasks. From cpu.stat \
         (nr_periods); the period timer stops while the cgroup is idle, so this does not measure time.",
    )
    .read(|row, out| out.count(Some(row.cfs.periods))),
    counter(
        "cpuwarden_pod_cfs_throttled_periods_total",
        &[],
        "Periods of the pod cgroup's own quota in which at least one CPU was throttled. From cpu.stat (nr_throttled).",
    )
    .read(|row, out| out.count(Some(row.cfs.throttled_periods))),
    counter(
        "cpuwarden_pod_cfs_burst_periods_total",
        &[],
        "Periods in which the pod used more than its own quota, from unused quota of earlier periods. From cpu.stat \
         (nr_bursts), Linux 5.14 and newer.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.cfs.burst_periods)),
    counter(
        "cpuwarden_pod_cfs_burst_seconds_total",
        &[],
        "CPU time used above the pod's own quota while bursting. From cpu.stat (burst_usec; burst_time on cgroup v1), \
         Linux 5.14 and newer.",
    )
    .from(Preset::Full)
    .read(|row, out| out.seconds(row.cfs.burst_ns)),
    counter(
        "cpuwarden_pod_throttled_seconds_total",
        &["origin"],
        "Time that run queues of the pod were throttled by the quota of the pod's own cgroup. Summed over CPUs, so it \
         can grow faster than wall time. Counted when the throttle ends; also before, at least by one run queue, if \
         nothing ran for two throttled periods. Its containers show the same time as origin=ancestor when the throttle \
         ends. From cpu.stat (throttled_usec; throttled_time on cgroup v1).",
    )
    .read(|row, out| out.with(["own"]).seconds(Some(row.cfs.throttled_ns))),
    histogram(
        "cpuwarden_pod_throttled_window_ratio",
        "Share of throttled periods of the pod cgroup's own quota in each window of one second, or of one sample \
         interval if that is longer. Windows without periods are not counted. From cpu.stat (nr_periods, \
         nr_throttled).",
    )
    .from(Preset::Full)
    .read(|row, out| window_histogram(out, &row.windows)),
    gauge(
        "cpuwarden_pod_cpu_limit_cores",
        &[],
        "CPU limit (quota divided by period) of the pod's own cgroup; absent after the quota is removed. From cpu.max; \
         on cgroup v1 from cpu.cfs_quota_us and cpu.cfs_period_us.",
    )
    .read(|row, out| out.number(row.cpu_limit.cores())),
];
