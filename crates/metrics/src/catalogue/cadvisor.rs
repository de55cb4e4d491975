//! cAdvisor's names of the same counters, for existing dashboards and alerts. They have a separate
//! page: most clusters also scrape the kubelet's cAdvisor, and a series must not come from two
//! sources. The values are the kernel's own, of the container's current cgroup: they include what was
//! counted before the agent started.

use snapshot::ContainerRow;

use super::{Descriptor, Metric, counter, gauge};
use crate::exposition::samples::{Label, Samples};

/// Metrics of the page that are chosen together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CadvisorGroup {
    /// CPU time.
    Usage,
    /// Periods and time throttled.
    Throttling,
    /// Quota.
    Quota,
    /// Period and shares.
    Spec,
    /// Pressure of CPU, memory and IO.
    Pressure,
    /// Working set.
    Memory,
    /// Number of threads.
    Threads,
}

impl CadvisorGroup {
    /// All groups, in the order of the page.
    pub const ALL: [Self; 7] = [
        Self::Usage,
        Self::Throttling,
        Self::Quota,
        Self::Spec,
        Self::Pressure,
        Self::Memory,
        Self::Threads,
    ];

    /// Name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Throttling => "throttling",
            Self::Quota => "quota",
            Self::Spec => "spec",
            Self::Pressure => "pressure",
            Self::Memory => "memory",
            Self::Threads => "threads",
        }
    }

    /// Starts of its metrics' names.
    const fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Usage => &["container_cpu_usage_"],
            Self::Throttling => &["container_cpu_cfs_"],
            Self::Quota => &["container_spec_cpu_quota"],
            Self::Spec => &["container_spec_cpu_period", "container_spec_cpu_shares"],
            Self::Pressure => &["container_pressure_"],
            Self::Memory => &["container_memory_"],
            Self::Threads => &["container_threads"],
        }
    }

    /// Whether the metric belongs to the group.
    pub(crate) fn contains(self, descriptor: &Descriptor) -> bool {
        self.prefixes().iter().any(|prefix| descriptor.name.starts_with(prefix))
    }
}

const LABELS: &[&str] = &["id", "name", "image"];

pub(crate) static CADVISOR: &[Metric<ContainerRow>] = &[
    counter(
        "container_cpu_usage_seconds_total",
        &["id", "name", "image", "cpu"],
        "CPU time used; cpu is always total.",
    )
    .read(|row, out| {
        let [id, name, image] = labels(row);
        out.with([id, name, image, Label::Text("total")]).seconds(live(row, row.kernel.usage_ns));
    }),
    counter("container_cpu_cfs_periods_total", LABELS, "Enforcement periods of the container's own quota.")
        .read(|row, out| put(row, out, row.kernel.periods)),
    counter("container_cpu_cfs_throttled_periods_total", LABELS, "Throttled periods of the container's own quota.")
        .read(|row, out| put(row, out, row.kernel.throttled_periods)),
    counter("container_cpu_cfs_throttled_seconds_total", LABELS, "Time throttled by the container's own quota.")
        .read(|row, out| seconds(row, out, row.kernel.throttled_ns)),
    gauge("container_spec_cpu_quota", LABELS, "CFS quota, microseconds; absent when unlimited.")
        .read(|row, out| put(row, out, row.bandwidth.and_then(|own| own.quota.usec()))),
    gauge("container_spec_cpu_period", LABELS, "CFS period, microseconds.")
        .read(|row, out| put(row, out, row.period_usec())),
    gauge(
        "container_spec_cpu_shares",
        LABELS,
        "CPU shares. On cgroup v2: the shares of the CPU request; if the request is unknown or not in force, the \
         weight converted to shares by weight_rule of cpuwarden_kernel_info (cAdvisor's own rule is linear).",
    )
    .read(|row, out| put(row, out, row.v1_shares())),
    counter(
        "container_pressure_cpu_waiting_seconds_total",
        LABELS,
        "Wall time in which at least one task waited for a CPU. From cpu.pressure (some), cgroup v2.",
    )
    .read(|row, out| seconds(row, out, row.kernel.pressure_waiting_ns)),
    counter(
        "container_pressure_cpu_stalled_seconds_total",
        LABELS,
        "Wall time in which all runnable tasks waited for a CPU. From cpu.pressure (full), cgroup v2.",
    )
    .read(|row, out| seconds(row, out, row.kernel.pressure_stalled_ns)),
    counter(
        "container_pressure_memory_waiting_seconds_total",
        LABELS,
        "Wall time in which at least one task waited for memory. From memory.pressure (some), cgroup v2.",
    )
    .read(|row, out| seconds(row, out, row.kernel.memory_waiting_ns)),
    counter(
        "container_pressure_memory_stalled_seconds_total",
        LABELS,
        "Wall time in which all non-idle tasks waited for memory. From memory.pressure (full), cgroup v2.",
    )
    .read(|row, out| seconds(row, out, row.kernel.memory_stalled_ns)),
    counter(
        "container_pressure_io_waiting_seconds_total",
        LABELS,
        "Wall time in which at least one task waited for IO. From io.pressure (some), cgroup v2.",
    )
    .read(|row, out| seconds(row, out, row.kernel.io_waiting_ns)),
    counter(
        "container_pressure_io_stalled_seconds_total",
        LABELS,
        "Wall time in which all non-idle tasks waited for IO. From io.pressure (full), cgroup v2.",
    )
    .read(|row, out| seconds(row, out, row.kernel.io_stalled_ns)),
    gauge(
        "container_memory_working_set_bytes",
        LABELS,
        "Memory in use minus inactive file pages.",
    )
    .read(|row, out| put(row, out, row.memory_working_set_bytes)),
    gauge(
        "container_threads",
        LABELS,
        "Number of threads. From pids.current; on cgroup v1, counted in /proc.",
    )
    .read(|row, out| put(row, out, row.kernel.tasks.or(row.threads.counted()))),
];

/// All metrics of that page.
pub(crate) fn descriptors() -> impl Iterator<Item = &'static Descriptor> {
    CADVISOR.iter().map(|metric| &metric.descriptor)
}

fn labels(row: &ContainerRow) -> [Label<'_>; 3] {
    let who = &*row.identity;
    [
        row.cgroup.as_deref().map_or(Label::Text(""), Label::Cgroup),
        Label::Text(&who.container_id),
        Label::Text(&who.image),
    ]
}

fn put(row: &ContainerRow, out: &mut Samples<'_>, value: Option<u64>) {
    out.with(labels(row)).count(live(row, value));
}

fn seconds(row: &ContainerRow, out: &mut Samples<'_>, nanoseconds: Option<u64>) {
    out.with(labels(row)).seconds(live(row, nanoseconds));
}

/// Name of a sandbox that uses CPU. No container has capitals in its name.
const SANDBOX: &str = "POD";

/// The value of a live container only: cAdvisor drops a container together with its cgroup. The
/// kubelet's series of a sandbox have other labels than the agent's.
fn live<T>(row: &ContainerRow, value: Option<T>) -> Option<T> {
    value.filter(|_| row.live && &*row.identity.container != SANDBOX)
}
