//! Metrics of the node: CPUs, kernel, and the sampler's own.

use std::time::SystemTime;

use snapshot::{NodeSnapshot, PressureScope, TraceMode};

use super::{Metric, Preset, counter, gauge};

pub(crate) static NODE: &[Metric<NodeSnapshot>] = &[
    gauge("cpuwarden_node_cpus", &["state"], "CPUs by state. From /sys/devices/system/cpu.").read(|snapshot, out| {
        for &(state, cpus) in &snapshot.node.cpus {
            out.with([state]).count(Some(u64::from(cpus)));
        }
    }),
    gauge(
        "cpuwarden_node_cpu_info",
        &["cpu", "core", "llc", "numa_node", "socket"],
        "Always 1: position of each online CPU in the topology. core is the lowest CPU of its thread siblings, llc the \
         last-level cache. From /sys/devices/system/cpu/cpuN.",
    )
    .from(Preset::Standard)
    .read(|snapshot, out| {
        for place in &snapshot.node.cpu_info {
            out.with([Some(place.cpu), place.core, place.llc, place.numa_node, place.socket]).count(Some(1));
        }
    }),
    counter(
        "cpuwarden_node_steal_seconds_total",
        &[],
        "CPU time that the hypervisor gave to other virtual machines, summed over CPUs; not part of any container's \
         usage or wait. From /proc/stat (steal).",
    )
    .read(|snapshot, out| out.seconds(snapshot.node.steal_ns)),
    counter(
        "cpuwarden_node_pressure_cpu_waiting_seconds_total",
        &[],
        "Wall time in which at least one task of the node waited for a CPU. From /proc/pressure/cpu (some).",
    )
    .read(|snapshot, out| out.seconds(snapshot.node.pressure_waiting_ns)),
    counter(
        "cpuwarden_node_contention_seconds_total",
        &["bound"],
        "Wall time in which at least one thread of a latency-sensitive pod (any that is not best effort, by its QoS \
         class or a batch priority) waited for a CPU for a reason other than its own quota, as a lower and an upper \
         bound. Unlike PSI it does not contain throttling. Waits of unknown cause are in the upper bound only. Absent \
         unless waits are traced all the time. From eBPF.",
    )
    .read(|snapshot, out| {
        for row in snapshot.waits.pressure.iter().filter(|row| row.scope == PressureScope::Node) {
            out.with(["lower"]).seconds(Some(row.lower_ns));
            out.with(["upper"]).seconds(Some(row.upper_ns));
        }
    }),
    counter(
        "cpuwarden_qos_class_contention_seconds_total",
        &["qos_class", "bound"],
        "As cpuwarden_node_contention_seconds_total, over the pods of one Kubernetes QoS class. From eBPF.",
    )
    .read(|snapshot, out| {
        for row in &snapshot.waits.pressure {
            let Some(class) = row.scope.qos_class() else { continue };
            out.with([class, "lower"]).seconds(Some(row.lower_ns));
            out.with([class, "upper"]).seconds(Some(row.upper_ns));
        }
    }),
    gauge(
        "cpuwarden_kernel_info",
        &["release", "cgroup_version", "cgroup_driver", "throttle_accounting", "psi", "btf", "weight_rule"],
        "Always 1: properties of the kernel and its cgroups, which explain why some series are absent. \
         throttle_accounting is task from Linux 6.18 on (a task is throttled on its return to user space), cfs_rq \
         before. weight_rule is how container runtimes convert CPU shares to a weight: linear up to runc 1.3.1 and \
         crun 1.22 (1024 shares are weight 39), quadratic from runc 1.3.2 and crun 1.23 (weight 100); on cgroup v2 it \
         is derived from the containers whose request is known (linear without one), on v1 it is linear.",
    )
    .read(|snapshot, out| {
        let kernel = &snapshot.node.kernel;
        if !kernel.release.is_empty() {
            let btf = if kernel.btf { "true" } else { "false" };
            let labels: [&str; 7] = [
                &kernel.release,
                kernel.cgroup_version,
                kernel.cgroup_driver,
                kernel.throttle_accounting,
                kernel.psi,
                btf,
                kernel.weight_rule.as_str(),
            ];
            out.with(labels).count(Some(1));
        }
    }),
    gauge(
        "cpuwarden_feature_enabled",
        &["feature", "reason"],
        "1 if an optional feature works; 0 if not, with the reason.",
    )
    .read(|snapshot, out| {
        for state in snapshot.features() {
            out.with([state.feature, state.reason.as_str()]).count(Some(u64::from(state.enabled)));
        }
    }),
    gauge(
        "cpuwarden_gc_unread_containers",
        &["reason"],
        "Running containers whose garbage collection is not read, by reason: not_permitted, unknown_version (Go \
         releases outside 1.19 to 1.27), no_symbols, no_perf_data (a JVM with -XX:-UsePerfData), implausible, \
         unsupported (.NET, Node.js), no_answer. Absent without --gc=on.",
    )
    .from(Preset::Standard)
    .read(|snapshot, out| {
        for (reason, containers) in &snapshot.gc.unread {
            out.with([reason.as_str()]).count(Some(*containers));
        }
    }),
    counter(
        "cpuwarden_gc_readings_dropped_total",
        &[],
        "Readings of a container's garbage collection that were dropped because the values were torn or implausible.",
    )
    .from(Preset::Full)
    .read(|snapshot, out| {
        out.count(snapshot.gc.feature.as_ref().map(|_| snapshot.gc.dropped));
    }),
    gauge(
        "cpuwarden_sched_trace_duty_ratio",
        &[],
        "Share of the time in which waits are traced: 1 is always; between 0 and 1 the trace runs in bursts to stay \
         within its budget, and all eBPF metrics are estimates, scaled up from the bursts; 0 if even bursts would \
         exceed the budget.",
    )
    .read(|snapshot, out| out.number(snapshot.waits.trace.map(|trace| duty(trace.mode)))),
    counter(
        "cpuwarden_bpf_run_seconds_total",
        &[],
        "CPU time of the eBPF program on context switches: measured by the kernel if kernel.bpf_stats_enabled is on, \
         else the number of switches multiplied by the duration of sampled ones; includes an allowance for the call \
         itself.",
    )
    .read(|snapshot, out| out.seconds(snapshot.waits.trace.map(|trace| trace.run_ns))),
    counter("cpuwarden_bpf_switches_total", &[], "Context switches that the eBPF program processed.")
        .read(|snapshot, out| out.count(snapshot.waits.trace.map(|trace| trace.switches))),
    counter(
        "cpuwarden_sched_trace_lost_seconds_total",
        &["reason"],
        "Wait time that could not be attributed, by reason: table_full (BPF table overflow; also part of the cause \
         unattributed), unknown_cgroup (cgroup removed before it was identified).",
    )
    .read(|snapshot, out| {
        let losses = snapshot.waits.trace.map(|trace| trace.losses);
        out.with(["table_full"]).seconds(losses.map(|losses| losses.lost_ns));
        out.with(["unknown_cgroup"]).seconds(losses.map(|losses| losses.unknown_cgroup_ns));
    }),
    counter(
        "cpuwarden_sched_trace_evicted_histories_total",
        &[],
        "Throttle histories of run queues that were evicted to make room for others; each eviction makes one wait \
         unattributed.",
    )
    .read(|snapshot, out| out.count(snapshot.waits.trace.map(|trace| trace.losses.evicted_histories))),
    gauge("cpuwarden_cgroups", &["kind"], "Monitored cgroups, by kind.").read(|snapshot, out| {
        for &(kind, cgroups) in &snapshot.sampler.cgroups {
            out.with([kind]).count(Some(cgroups));
        }
    }),
    gauge(
        "cpuwarden_unmapped_cgroups",
        &["kind"],
        "Cgroups without a name in any pod list although one is overdue, by kind; 0 on a healthy node. Their series \
         carry the container ID, and the pod's UID if the pod is unknown, too.",
    )
    .read(|snapshot, out| {
        for &(kind, cgroups) in &snapshot.sampler.unmapped_cgroups {
            out.with([kind]).count(Some(cgroups));
        }
    }),
    gauge(
        "cpuwarden_containers_without_cgroup",
        &["sandboxed"],
        "Containers that a list of pods younger than 60 s calls running and that have had no cgroup for 30 s: they are \
         not measured; 0 on a healthy node. sandboxed is true if the runtime class of the pod is known to run pods in a \
         sandbox (gVisor, Kata), whose usage counts for the pod. Absent without a recent list.",
    )
    .read(|snapshot, out| {
        let Some(missing) = &snapshot.missing else { return };
        for (label, sandboxed) in [("false", false), ("true", true)] {
            let all = missing.iter().filter(|row| row.sandboxed_by.is_some() == sandboxed);
            out.with([label]).count(Some(all.count() as u64));
        }
    }),
    gauge(
        "cpuwarden_unkept_cgroups",
        &[],
        "Cgroups whose files the agent opens and closes for each read, because the descriptor limit is reached.",
    )
    .read(|snapshot, out| out.count(snapshot.taken.map(|_| snapshot.sampler.unkept_cgroups))),
    gauge(
        "cpuwarden_last_sample_timestamp_seconds",
        &[],
        "Unix time of the last snapshot that the sampler published; absent before the first. If the sampler stops, \
         this value stays the same and the page repeats the last values.",
    )
    .read(|snapshot, out| out.number(snapshot.taken.and_then(unix_seconds))),
    counter(
        "cpuwarden_read_errors_total",
        &["reason"],
        "Failed reads of kernel files, by reason. vanished: the cgroup was removed during the read, which is normal. \
         implausible: a counter grew faster than the CPUs allow; the growth is dropped.",
    )
    .read(|snapshot, out| {
        for &(reason, errors) in &snapshot.sampler.read_errors {
            out.with([reason]).count(Some(errors));
        }
    }),
    gauge(
        "cpuwarden_sample_interval_seconds",
        &[],
        "Sample interval in force: the configured one, or a longer one while sampling would exceed its CPU budget.",
    )
    .read(|snapshot, out| out.number(snapshot.taken.map(|_| snapshot.interval.as_secs_f64()))),
    counter(
        "cpuwarden_task_scan_seconds_total",
        &[],
        "Wall time spent reading the containers' threads, the only cost that grows with their number. Limit per tick: \
         1/2,000 of the sample interval plus one container.",
    )
    .read(|snapshot, out| out.seconds(snapshot.sampler.task_scan_ns)),
    counter("cpuwarden_task_scan_threads_total", &[], "Number of thread reads, over all containers.")
        .read(|snapshot, out| out.count(snapshot.sampler.task_scan_threads)),
    // Names used by every client library.
    counter("process_cpu_seconds_total", &[], "CPU time of the agent's own process, user and system.")
        .read(|snapshot, out| out.seconds(snapshot.sampler.process.cpu_ns)),
    gauge("process_resident_memory_bytes", &[], "Resident memory of the agent's own process.")
        .read(|snapshot, out| out.count(snapshot.sampler.process.resident_bytes)),
    gauge("process_virtual_memory_bytes", &[], "Virtual memory of the agent's own process.")
        .read(|snapshot, out| out.count(snapshot.sampler.process.virtual_bytes)),
    gauge("process_open_fds", &[], "Open file descriptors of the agent's own process, counted every 30 s.")
        .read(|snapshot, out| out.count(snapshot.sampler.process.open_fds)),
    gauge("process_max_fds", &[], "Maximum number of open file descriptors of the agent's own process.")
        .read(|snapshot, out| out.count(snapshot.sampler.process.max_fds)),
    gauge("process_start_time_seconds", &[], "Start time of the agent's own process, as Unix time.")
        .read(|snapshot, out| out.number(snapshot.sampler.process.start_time_seconds)),
];

fn unix_seconds(time: SystemTime) -> Option<f64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

fn duty(mode: TraceMode) -> f64 {
    match mode {
        TraceMode::Continuous => 1.0,
        TraceMode::Bursts { one_of } => 1.0 / f64::from(one_of),
        TraceMode::Detached => 0.0,
    }
}
