//! Metrics of waits: one row per pod that waited and pod that was running.

use snapshot::InterferenceRow;

use super::{Metric, Preset, counter};

pub(crate) static INTERFERENCE: &[Metric<InterferenceRow>] = &[counter(
    "cpuwarden_interference_wait_seconds_total",
    &["aggressor_namespace", "aggressor_pod"],
    "Time that the pod waited for a CPU while another workload ran on it, without throttled time, by aggressor: the \
     pods that cause the most wait, each as a series that exists until one of the two pods is gone; other pods \
     combined as aggressor_namespace=other; host services and the kernel as system. Summed over threads: its rate is \
     the waited share of the time, and can exceed 1. From eBPF.",
)
.from(Preset::Standard)
.read(|row, out| {
    out.with([&*row.aggressor_namespace, &*row.aggressor_pod]).seconds(Some(row.wait_ns));
})];
