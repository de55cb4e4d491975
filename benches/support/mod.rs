//! A simple harness for a shared, noisy machine. The cases of a group run in turn, round after
//! round, so that a busy neighbor slows all of them; a ratio is the median of the ratios within
//! each round. It only prints.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::time::{Duration, Instant};

/// Rounds of a group. Odd, so that the median is one of the measurements.
const ROUNDS: usize = 41;

/// Target duration of a case's runs within one round; a longer case runs once.
const ROUND: Duration = Duration::from_millis(5);

/// One thing to measure.
pub(crate) struct Case<'a> {
    name: String,
    prepare: Option<Box<dyn FnMut() + 'a>>,
    run: Box<dyn FnMut() + 'a>,
}

impl<'a> Case<'a> {
    /// A case whose `run` does the work once.
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), prepare: None, run: Box::new(run) }
    }

    /// Adds a preparation before each run, which is not measured.
    pub(crate) fn after(self, prepare: impl FnMut() + 'a) -> Self {
        Self { prepare: Some(Box::new(prepare)), ..self }
    }

    fn prepare(&mut self) {
        if let Some(prepare) = &mut self.prepare {
            prepare();
        }
    }
}

/// Measurement of one case, round by round.
pub(crate) struct Measurement {
    /// Name of the case.
    pub(crate) name: String,
    /// Heap allocations of one run, after the first one warmed it up.
    pub(crate) allocations: u64,
    /// Nanoseconds per run, one value per round.
    rounds: Vec<f64>,
}

impl Measurement {
    /// Median over the rounds, nanoseconds per run.
    pub(crate) fn median_ns(&self) -> f64 {
        median(self.rounds.clone())
    }

    /// Minimum over the rounds, nanoseconds per run: the cost without interference.
    pub(crate) fn min_ns(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Ratio of this to `other`: the median of the ratios within each round.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(this, other)| this / other).collect())
    }
}

/// Measures the cases in turn, round after round, and returns the measurements in the order of the
/// cases.
pub(crate) fn interleaved(mut cases: Vec<Case<'_>>) -> Vec<Measurement> {
    let mut measurements: Vec<_> = cases.iter_mut().map(warmed_up).collect();
    for round in 0..ROUNDS {
        for turn in 0..cases.len() {
            // Rotates the order, so that each case runs after every other one equally often: none
            // always finds the same caches.
            let at = (round + turn) % cases.len();
            let (runs, measurement) = &mut measurements[at];
            cases[at].prepare();
            let start = Instant::now();
            for _ in 0..*runs {
                (cases[at].run)();
            }
            measurement.rounds.push(start.elapsed().as_nanos() as f64 / f64::from(*runs));
        }
    }
    measurements.into_iter().map(|(_, measurement)| measurement).collect()
}

/// Runs the case until its buffers have grown, counts its allocations, and computes the number of
/// runs per round.
fn warmed_up(case: &mut Case<'_>) -> (u32, Measurement) {
    case.prepare();
    (case.run)();
    case.prepare();
    let start = Instant::now();
    let counted = allocation_counter::measure(|| (case.run)());
    let most = if case.prepare.is_some() { 1 } else { u32::MAX };
    let runs = ROUND.as_nanos() / start.elapsed().as_nanos().max(1);
    let runs = u32::try_from(runs).unwrap_or(most).clamp(1, most);
    (
        runs,
        Measurement {
            name: case.name.clone(),
            allocations: counted.count_total,
            rounds: Vec::new(),
        },
    )
}

/// Prints one line per measurement: median, minimum, median per unit of work, allocations.
pub(crate) fn print(measurements: &[Measurement], unit: &str, units: usize) {
    for measurement in measurements {
        let (median, min) = (measurement.median_ns(), measurement.min_ns());
        println!(
            "  {:<44} {:>9.3} ms  (min {:>8.3})  {:>8.1} ns/{unit}  {:>7} allocations",
            measurement.name,
            median / 1e6,
            min / 1e6,
            median / units.max(1) as f64,
            measurement.allocations,
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
