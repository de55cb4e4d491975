//! cAdvisor's names of the same counters, for existing dashboards and alerts. They have a separate
//! page: most clusters also scrape the kubelet's cAdvisor, and a series must not come from two
//! sources. The values are the kernel's own, of the container's current cgroup: they include what was
//! counted before the agent started.

use snapshot::ContainerRow;

use super::{Descriptor, Metric, counter, gauge};
use crate::exposition::samples::{Label, Samples};

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
        .read(|row, out| out.with(labels(row)).seconds(live(row, row.kernel.throttled_ns))),
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
    .read(|row, out| out.with(labels(row)).seconds(live(row, row.kernel.pressure_waiting_ns))),
    counter(
        "container_pressure_cpu_stalled_seconds_total",
        LABELS,
        "Wall time in which all runnable tasks waited for a CPU. From cpu.pressure (full), cgroup v2.",
    )
    .read(|row, out| out.with(labels(row)).seconds(live(row, row.kernel.pressure_stalled_ns))),
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

/// The value of a live container only: cAdvisor drops a container together with its cgroup.
fn live<T>(row: &ContainerRow, value: Option<T>) -> Option<T> {
    value.filter(|_| row.live)
}
