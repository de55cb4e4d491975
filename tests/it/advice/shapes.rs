//! Loads with the same demand in every run.

use std::time::Duration;

use crate::support::Workload;

/// A load, and the limits under which it is measured.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) load: Vec<Workload>,
    /// Limits, cores.
    pub(super) limits: &'static [f64],
    /// CFS period.
    pub(super) period: Duration,
}

/// Loads that run at the same time, with CPU time to spare.
pub(super) struct Batch {
    pub(super) length: Duration,
    pub(super) shapes: Vec<Shape>,
}

fn burst(threads: u32, cpu_ms: u64, every_ms: u64) -> Workload {
    Workload::Burst {
        threads,
        cpu: Duration::from_millis(cpu_ms),
        every: Duration::from_millis(every_ms),
    }
}

fn shape(name: &'static str, load: impl Into<Vec<Workload>>, limits: &'static [f64]) -> Shape {
    Shape { name, load: load.into(), limits, period: Duration::from_millis(100) }
}

fn batch(length_ms: u64, shapes: impl Into<Vec<Shape>>) -> Batch {
    Batch { length: Duration::from_millis(length_ms), shapes: shapes.into() }
}

/// The distance of bursts is no multiple of the period, and a batch lasts until they have started
/// at every tenth of a period. The kernel's share therefore does not depend on the phase of the
/// first burst.
pub(super) fn batches() -> Vec<Batch> {
    let mixed = [burst(1, 1, 10), burst(1, 40, 1030)];
    vec![
        batch(
            10_600,
            [
                shape("nothing", [], &[0.05]),
                shape("30 ms every 530 ms", [burst(1, 30, 530)], &[0.1, 0.2, 0.4]),
                shape("1 ms every 10 ms and 40 ms every 1,030 ms", mixed, &[0.2, 0.3]),
            ],
        ),
        batch(
            10_600,
            [
                shape("80 ms every 530 ms", [burst(1, 80, 530)], &[0.3, 0.6]),
                shape("two threads, 30 ms each every 530 ms", [burst(2, 30, 530)], &[0.25, 0.45]),
            ],
        ),
        batch(
            10_300,
            [
                shape("150 ms every 1,030 ms", [burst(1, 150, 1030)], &[0.5, 0.75]),
                shape("20 ms every 330 ms", [burst(1, 20, 330)], &[0.1, 0.15]),
            ],
        ),
        batch(6_300, [shape("40 ms every 210 ms", [burst(1, 40, 210)], &[0.25, 0.5])]),
        batch(6_100, [shape("250 ms every 610 ms", [burst(1, 250, 610)], &[0.6])]),
        batch(
            6_200,
            [
                shape("10 ms every 1,030 ms", [burst(1, 10, 1030)], &[0.05, 0.2]),
                shape("1 ms every 10 ms", [burst(1, 1, 10)], &[0.05, 0.15]),
                shape("3 ms every 10 ms", [burst(1, 3, 10)], &[0.2, 0.4]),
            ],
        ),
        batch(
            6_100,
            [Shape {
                period: Duration::from_millis(10),
                ..shape(
                    "150 ms every 610 ms, in periods of 10 ms",
                    [burst(1, 150, 610)],
                    &[0.3, 0.5, 1.25],
                )
            }],
        ),
        batch(3_000, [shape("two threads, 2 ms each every 10 ms", [burst(2, 2, 10)], &[0.3, 0.5])]),
        batch(3_000, [shape("a thread without a pause", [Workload::Spin { threads: 1 }], &[0.2])]),
        batch(
            3_000,
            [shape("two threads without a pause", [Workload::Spin { threads: 2 }], &[0.2])],
        ),
    ]
}
