//! Metrics of containers: one snapshot row per container, over all its restarts. Counters persist,
//! gauges need a live cgroup.

use std::sync::LazyLock;

use snapshot::{
    ContainerGc, ContainerRow, Histogram, LATENCY_BOUNDS_NS, STALL_BOUNDS_NS, WINDOW_BUCKETS,
    WindowHistogram,
};

use super::{Metric, Preset, counter, gauge, histogram};
use crate::exposition::samples::{BoundText, Label, Samples};

/// Series that the standard preset has only where waits are not traced: the trace's causes replace
/// them.
const WITHOUT_TRACE: &str = "if no trace runs";

pub(crate) static CONTAINER: &[Metric<ContainerRow>] = &[
    gauge(
        "cpuwarden_container_info",
        &["uid", "container_id", "image", "qos_class", "cpu_qos", "cgroup_driver", "workload"],
        "Always 1 while a cgroup of the container exists. uid is the pod's, workload the name of its controller (a pod \
         without one has no such label); names come from the kubelet, the driver from the cgroup path. Labels of the \
         pod that --pod-labels names follow, as label_*.",
    )
    .from(Preset::Standard)
    .read(|row, out| {
        if row.live {
            let who = &*row.identity;
            let [uid, id, image, class, cpu_qos, driver] =
                [&*who.uid, &who.container_id, &who.image, &who.qos_class, &who.cpu_qos, who.cgroup_driver]
                    .map(Label::Identity);
            let workload = who.workload.as_ref();
            let workload = workload.map_or(Label::Absent, |owner| Label::Identity(&owner.name));
            let sample = out.with([uid, id, image, class, cpu_qos, driver, workload]);
            sample.and(&who.pod_labels).count(Some(1));
        }
    }),
    counter(
        "cpuwarden_container_cpu_usage_seconds_total",
        &["mode"],
        "CPU time used, by mode. From cpu.stat (user_usec, system_usec); on cgroup v1 from cpuacct.stat in steps of 10 \
         ms, so the sum of the modes can be up to 20 ms below the usage.",
    )
    .from(Preset::Standard)
    .brief_from(Preset::Lean, "without `mode`")
    .read(|row, out| {
        if out.is_whole() {
            out.with(["user"]).seconds(row.user_ns);
            out.with(["system"]).seconds(row.system_ns);
        } else {
            out.with([Label::Absent]).seconds(row.usage_ns);
        }
    }),
    counter(
        "cpuwarden_container_cfs_periods_total",
        &[],
        "Enforcement periods of the container's own quota in which it had runnable tasks. From cpu.stat (nr_periods); \
         the period timer stops while the cgroup is idle, so this does not measure time.",
    )
    .read(|row, out| out.count(row.cfs.map(|cfs| cfs.periods))),
    counter(
        "cpuwarden_container_cfs_throttled_periods_total",
        &[],
        "Periods of the container's own quota in which at least one CPU was throttled. From cpu.stat (nr_throttled); \
         one throttled CPU marks the whole period.",
    )
    .read(|row, out| out.count(row.cfs.map(|cfs| cfs.throttled_periods))),
    gauge(
        "cpuwarden_container_cfs_period_seconds",
        &[],
        "Enforcement period of the quota in cpuwarden_container_cpu_limit_cores, the lowest one of the container and \
         its ancestors; absent when unlimited. Throttled periods per second multiplied by this value is the share of \
         wall time in throttled periods. From cpu.max; on cgroup v1 from cpu.cfs_period_us.",
    )
    .read(|row, out| {
        out.seconds(row.cpu_limit.limited().map(|limit| limit.period_usec * 1000));
    }),
    counter(
        "cpuwarden_container_cfs_burst_periods_total",
        &[],
        "Periods in which the container used more than its quota, from unused quota of earlier periods. From cpu.stat \
         (nr_bursts), Linux 5.14 and newer.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.cfs.and_then(|cfs| cfs.burst_periods))),
    counter(
        "cpuwarden_container_cfs_burst_seconds_total",
        &[],
        "CPU time used above the quota while bursting. From cpu.stat (burst_usec; burst_time on cgroup v1), Linux \
         5.14 and newer.",
    )
    .from(Preset::Full)
    .read(|row, out| out.seconds(row.cfs.and_then(|cfs| cfs.burst_ns))),
    counter(
        "cpuwarden_container_throttled_seconds_total",
        &["origin"],
        "Time that run queues of the container were throttled by its own CPU limit (own), one above it (ancestor), or \
         a quota of a cgroup below it (child). A delay, not CPU time that it would have used. Summed over CPUs, so it \
         can grow faster than wall time. Counted when the throttle ends; own also before, at least by one run queue, \
         if nothing ran for two throttled periods. From cpu.stat (throttled_usec; throttled_time on cgroup v1); for \
         ancestors from cpu.stat.local (Linux 6.6 and newer), else their own cpu.stat minus the container's; for \
         children from the cpu.stat of up to 64 cgroups every 10 seconds. Not comparable across Linux 6.18: see \
         throttle_accounting of cpuwarden_kernel_info.",
    )
    .read(|row, out| {
        out.with(["own"]).seconds(row.cfs.map(|cfs| cfs.throttled_ns));
        out.with(["ancestor"]).seconds(row.throttled_ancestor_ns);
        out.with(["child"]).seconds(row.throttled_child_ns);
    }),
    histogram(
        "cpuwarden_container_throttled_window_ratio",
        "Share of throttled periods in each window of one second, or of one sample interval if that is longer. Windows \
         without periods are not counted. From cpu.stat (nr_periods, nr_throttled).",
    )
    .from(Preset::Full)
    .brief_from(Preset::Standard, "buckets 0 and 0.25")
    .read(|row, out| {
        if let Some(windows) = &row.windows {
            window_histogram(out, windows);
        }
    }),
    gauge(
        "cpuwarden_container_cpu_limit_cores",
        &[],
        "Lowest CPU limit (quota divided by period) of the container and its visible ancestors, including those above \
         kubepods; absent when unlimited. From cpu.max; on cgroup v1 from cpu.cfs_quota_us and cpu.cfs_period_us.",
    )
    .read(|row, out| out.number(row.cpu_limit.cores())),
    gauge("cpuwarden_container_cpu_request_cores", &[], "CPU request, from the pod's spec.")
        .read(|row, out| out.number(row.request_cores)),
    gauge(
        "cpuwarden_container_cpu_weight",
        &[],
        "cgroup v2 weight, 1 to 10000. From cpu.weight; on cgroup v1 converted from cpu.shares by weight_rule of \
         cpuwarden_kernel_info.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.v2_weight())),
    counter(
        "cpuwarden_container_pressure_cpu_waiting_seconds_total",
        &[],
        "Wall time in which at least one task of the container waited for a CPU, throttling included. From \
         cpu.pressure (some), cgroup v2.",
    )
    .from(Preset::Full)
    .brief_from(Preset::Standard, WITHOUT_TRACE)
    .read(|row, out| out.seconds(row.pressure_waiting_ns.filter(|_| is_due(out)))),
    counter(
        "cpuwarden_container_pressure_cpu_stalled_seconds_total",
        &[],
        "Wall time in which every task of the container that could run waited for a CPU, throttling included. From \
         cpu.pressure (full), cgroup v2.",
    )
    .from(Preset::Full)
    .brief_from(Preset::Standard, WITHOUT_TRACE)
    .read(|row, out| out.seconds(row.pressure_stalled_ns.filter(|_| is_due(out)))),
    counter(
        "cpuwarden_container_contention_wait_seconds_total",
        &["bound"],
        "Time waited for a CPU without throttling, as a lower and an upper bound, because the kernel does not separate \
         the two. Up to the last scan but one that saw the thread; threads that began and ended between two scans are \
         in neither bound. Without cpu.stat.local (before Linux 6.6), upper includes throttling by limits above the \
         container. Summed over threads: the rate of lower is the waited share of the time that the views show without \
         the trace, and can exceed 1. From /proc/PID/task/TID/schedstat, cpu.stat and cpu.stat.local.",
    )
    .from(Preset::Full)
    .brief_from(Preset::Standard, WITHOUT_TRACE)
    .read(|row, out| {
        if is_due(out) {
            out.with(["lower"]).seconds(row.contention_lower_ns);
            out.with(["upper"]).seconds(row.contention_upper_ns);
        }
    }),
    counter(
        "cpuwarden_container_cpu_wait_seconds_total",
        &["cause"],
        "Time waited for a CPU, by cause: throttled (its own CPU limit, one above it, or a quota below it), neighbor \
         (another pod ran), self (its own pod ran), system (a host service or the kernel ran, or the CPU was waking \
         up), unattributed (part of the threads' run delay, cause not observed). Summed over threads: its rate is the \
         waited share of the time that the views show, and can exceed 1. Counted when a wait ends. From eBPF.",
    )
    .from(Preset::Standard)
    .brief_from(Preset::Lean, "cause neighbor")
    .read(|row, out| {
        let Some(waits) = row.waits.as_deref() else { return };
        if out.is_whole() {
            // Without a quota at any level nothing throttles it.
            let throttled = Some(waits.throttled_ns).filter(|&ns| ns > 0 || has_quota(row));
            out.with(["throttled"]).seconds(throttled);
        }
        out.with(["neighbor"]).seconds(Some(waits.neighbor_ns));
        if out.is_whole() {
            out.with(["self"]).seconds(Some(waits.self_ns));
            out.with(["system"]).seconds(Some(waits.system_ns));
            out.with(["unattributed"]).seconds(Some(waits.unattributed_ns));
        }
    }),
    histogram(
        "cpuwarden_container_runqueue_latency_seconds",
        "Duration of each wait for a CPU, without throttled time. From eBPF.",
    )
    .from(Preset::Full)
    .read(|row, out| {
        if let Some(waits) = row.waits.as_deref() {
            time_histogram(out, &LATENCY_BOUNDS, &waits.latency);
        }
    }),
    histogram(
        "cpuwarden_container_throttle_stall_seconds",
        "Duration of each throttle of a run queue of the container on which one of its tasks waited. From eBPF.",
    )
    .from(Preset::Full)
    .read(|row, out| {
        if let Some(waits) = row.waits.as_deref() {
            time_histogram(out, &STALL_BOUNDS, &waits.stalls);
        }
    }),
    counter(
        "cpuwarden_container_smt_shared_seconds_total",
        &["sibling"],
        "Time on a CPU, by what the other hardware thread of the core ran at the same time: self (the same pod), other \
         (another pod, a host service or the kernel), idle. Absent if no core has two hardware threads, as in most \
         virtual machines. From eBPF.",
    )
    .from(Preset::Full)
    .read(|row, out| {
        if let Some(smt) = row.waits.as_deref().and_then(|waits| waits.smt) {
            out.with(["self"]).seconds(Some(smt.self_ns));
            out.with(["other"]).seconds(Some(smt.other_ns));
            out.with(["idle"]).seconds(Some(smt.idle_ns));
        }
    }),
    counter(
        "cpuwarden_container_gc_cycles_total",
        &[],
        "Completed cycles of garbage collection, from the first process's start. From the process's memory (Go) and \
         its performance data (JVM), every 10 s; absent without --gc=on, and for other runtimes.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.count(row.gc.as_deref().map(|gc| gc.cycles))),
    counter(
        "cpuwarden_container_gc_cpu_seconds_total",
        &[],
        "CPU time of the garbage collector by the runtime's own clock, up to the latest cycle. Go counts the \
         wall-clock time of its workers, so time in which they were throttled or preempted is included. From Go 1.20 \
         and, with G1 or Parallel, JDK 22.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.seconds(row.gc.as_deref().and_then(|gc| gc.cpu_ns))),
    gauge(
        "cpuwarden_container_gc_cpu_ratio",
        &[],
        "Share of the program's CPU time that the garbage collector took between the last two readings, some 10 s: \
         both by the runtime's own clock, so throttling does not distort it. From Go 1.20.",
    )
    .from(Preset::Standard)
    .read(|row, out| {
        out.number(live_gc(row).and_then(|gc| gc.recent?.cpu_share));
    }),
    counter(
        "cpuwarden_container_gc_pause_seconds_total",
        &[],
        "Wall time in which the garbage collector stopped the program.",
    )
    .from(Preset::Full)
    .read(|row, out| out.seconds(row.gc.as_deref().and_then(|gc| gc.pause_ns))),
    gauge(
        "cpuwarden_container_gc_heap_live_bytes",
        &[],
        "Live heap after the latest cycle (Go), or heap in use as of the latest collection (JVM).",
    )
    .from(Preset::Standard)
    .read(|row, out| out.count(live_gc(row).and_then(|gc| gc.live_bytes))),
    gauge(
        "cpuwarden_container_gc_heap_goal_bytes",
        &[],
        "Heap size at which the next cycle is to be complete (Go), or committed heap (JVM).",
    )
    .from(Preset::Standard)
    .read(|row, out| out.count(live_gc(row).and_then(|gc| gc.goal_bytes))),
    gauge(
        "cpuwarden_container_gc_heap_limit_bytes",
        &[],
        "Limit that the runtime keeps: the memory limit of Go (GOMEMLIMIT), or the maximum heap of a JVM; absent \
         without one.",
    )
    .from(Preset::Standard)
    .read(|row, out| out.count(live_gc(row).and_then(|gc| gc.limit_bytes))),
    gauge(
        "cpuwarden_container_cpuset_cpus",
        &[],
        "CPUs that the container may run on. From cpuset.cpus.effective; on cgroup v1 cpuset.effective_cpus.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.cpuset.as_ref().map(|cpuset| u64::from(cpuset.count)))),
    gauge(
        "cpuwarden_container_cpuset_info",
        &["cpus"],
        "Always 1; cpus is the list of CPUs that the container may run on, in the kernel's format. From \
         cpuset.cpus.effective; on cgroup v1 cpuset.effective_cpus.",
    )
    .from(Preset::Full)
    .read(|row, out| {
        if let Some(cpuset) = &row.cpuset {
            out.with([cpuset.cpus.as_str()]).count(Some(1));
        }
    }),
    gauge(
        "cpuwarden_container_numa_memory_bytes",
        &["numa_node"],
        "Memory of the container on each NUMA node. From memory.numa_stat.",
    )
    .from(Preset::Full)
    .read(|row, out| {
        for &(numa_node, bytes) in &row.numa_memory {
            out.with([numa_node]).count(Some(bytes));
        }
    }),
    gauge(
        "cpuwarden_container_threads",
        &[],
        "Number of threads; absent above 1,024. From /proc/PID/task of the container's processes.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.threads.counted())),
    gauge(
        "cpuwarden_container_runnable_threads",
        &[],
        "Threads that were running or waiting for a CPU (state R) when they were read. From /proc/PID/task/TID/stat.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.runnable_threads)),
    gauge(
        "cpuwarden_container_memory_working_set_bytes",
        &[],
        "Memory in use without inactive page cache. From memory.current and memory.stat; on cgroup v1 \
         memory.usage_in_bytes and memory.stat.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.memory_working_set_bytes)),
    gauge(
        "cpuwarden_container_memory_limit_bytes",
        &[],
        "Memory limit; absent when unlimited. From memory.max; on cgroup v1 memory.limit_in_bytes.",
    )
    .from(Preset::Full)
    .read(|row, out| out.count(row.memory_limit_bytes.limited())),
    gauge("cpuwarden_container_memory_request_bytes", &[], "Memory request, from the pod's spec.")
        .from(Preset::Full)
        .read(|row, out| out.count(row.memory_request_bytes)),
];

/// Garbage collection of a container that still runs: for gauges.
fn live_gc(row: &ContainerRow) -> Option<&ContainerGc> {
    row.gc.as_deref().filter(|_| row.live)
}

/// Whether the container has, or had, a quota of its own or above it.
fn has_quota(row: &ContainerRow) -> bool {
    row.cpu_limit.limited().is_some() || row.cfs.is_some() || row.throttled_ancestor_ns.is_some()
}

/// Whether series in [`WITHOUT_TRACE`] are due.
fn is_due(out: &Samples<'_>) -> bool {
    out.is_whole() || !out.is_traced()
}

static LATENCY_BOUNDS: LazyLock<[BoundText; 9]> =
    LazyLock::new(|| LATENCY_BOUNDS_NS.map(|ns| BoundText::new(seconds(ns))));
static STALL_BOUNDS: LazyLock<[BoundText; 9]> =
    LazyLock::new(|| STALL_BOUNDS_NS.map(|ns| BoundText::new(seconds(ns))));
static WINDOW_BOUNDS: LazyLock<[BoundText; WINDOW_BUCKETS.len()]> =
    LazyLock::new(|| WINDOW_BUCKETS.map(BoundText::new));

/// Bounds of the brief form: windows without throttling, and those that are harmless by the alerts'
/// threshold.
const BRIEF_WINDOW_BUCKETS: [f64; 2] = [0.0, 0.25];

/// Writes a histogram of throttled windows, with all its buckets or those of the brief form.
pub(super) fn window_histogram(out: &mut Samples<'_>, windows: &WindowHistogram) {
    let mut cumulative = 0;
    let is_whole = out.is_whole();
    let bounds = WINDOW_BUCKETS.iter().zip(&*WINDOW_BOUNDS);
    let shown = bounds.zip(windows.counts).filter_map(|((bound, text), count)| {
        cumulative += count;
        (is_whole || BRIEF_WINDOW_BUCKETS.contains(bound)).then_some((text, cumulative))
    });
    out.cumulative_histogram(shown, windows.counts.iter().sum(), windows.sum);
}

/// Writes a histogram of nanoseconds in seconds. Its counts have one more bucket than there are
/// bounds.
fn time_histogram(out: &mut Samples<'_>, bounds: &[BoundText; 9], histogram: &Histogram) {
    out.histogram(bounds, &histogram.counts, seconds(histogram.sum_ns));
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
