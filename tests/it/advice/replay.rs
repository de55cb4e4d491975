//! Compares the replay with the kernel: the share of periods that a limit would throttle, and the
//! share that it does throttle.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use analysis::Count;

use super::load::{self, Load};
use super::recorded::Run;
use super::shapes::{Batch, batches};
use crate::support::{Qos, RealTree};

/// Maximum difference between the two shares.
const TOLERANCE: f64 = 0.05;

/// Limit above the use of any load, cores.
const UNHINDERED: f64 = 2.0;

/// Maximum wait for a CPU of unhindered loads, as a share of their run time. Above it the machine
/// counts as busy, because waiting lengthens bursts.
const UNDISTURBED: f64 = 0.05;

/// Maximum number of runs of a batch. Builds and other tests disturb runs for minutes.
const ATTEMPTS: usize = 40;

/// Number of undisturbed runs that are judged together. A run has about ten bursts: chance decides
/// their phase within a period and which of them the trace contains.
const POOLED: usize = 8;

/// Time over which the starts of a batch's loads are spread, so that their bursts do not overlap.
const STAGGER: Duration = Duration::from_millis(1030);

/// One load under one limit, over one or more runs.
pub(super) struct Row {
    name: String,
    limit_cores: f64,
    kernel: Count,
    /// Shares that the kernel counts and that the replay finds, per run.
    runs: Vec<(f64, f64)>,
}

impl Row {
    fn measured(&self) -> f64 {
        self.kernel.share().unwrap_or(0.0)
    }

    fn replayed(&self) -> f64 {
        self.runs.iter().map(|run| run.1).sum::<f64>() / self.runs.len() as f64
    }

    /// Median over the runs of the difference between the two shares.
    fn median_difference(&self) -> f64 {
        let mut differences: Vec<f64> =
            self.runs.iter().map(|(measured, replayed)| measured - replayed).collect();
        differences.sort_by(f64::total_cmp);
        let (lower, upper) = ((differences.len() - 1) / 2, differences.len() / 2);
        f64::midpoint(differences[lower], differences[upper])
    }

    /// Whether the two shares differ over all runs, and in most of them: one disturbed run, whose
    /// unhindered loads found a CPU by chance, is no evidence.
    pub(super) fn is_off(&self) -> bool {
        let difference = self.measured() - self.replayed();
        difference.abs() > TOLERANCE && self.median_difference().abs() > TOLERANCE
    }

    /// Name of the load, and limit.
    pub(super) fn place(&self) -> (&str, f64) {
        (&self.name, self.limit_cores)
    }

    fn add(&mut self, counted: Count, replayed: f64) {
        self.kernel = self.kernel.plus(counted);
        self.runs.push((counted.share().unwrap_or(0.0), replayed));
    }
}

/// The rows of these runs, in the order of their first run.
pub(super) fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        for &(limit_cores, periods, throttled) in &run.kernel {
            let counted = Count { periods, throttled, ..Count::default() };
            let at = rows.iter().position(|row| row.place() == (&*run.load, limit_cores));
            let at = at.unwrap_or_else(|| {
                let (name, kernel) = (run.load.clone(), Count::default());
                rows.push(Row { name, limit_cores, kernel, runs: Vec::new() });
                rows.len() - 1
            });
            rows[at].add(counted, run.replayed(limit_cores));
        }
    }
    rows
}

#[test]
fn one_disturbed_run_is_no_evidence_and_most_runs_are() {
    let row = |runs: &[(f64, f64)]| {
        let periods = 100 * u32::try_from(runs.len()).unwrap();
        let throttled = runs.iter().map(|(measured, _)| (measured * 100.0) as u32).sum();
        let kernel = Count { periods, throttled, ..Count::default() };
        Row { name: "a load".into(), limit_cores: 0.5, kernel, runs: runs.to_vec() }
    };
    let (disturbed, agreeing, wrong) = ((0.5, 0.9), (0.85, 0.88), (0.8, 0.9));
    assert!(row(&[disturbed]).is_off());
    assert!(!row(&[disturbed, agreeing, agreeing, agreeing]).is_off());
    assert!(row(&[wrong, wrong, wrong, agreeing]).is_off());
}

/// With `CPUWARDEN_BLESS=1` it also writes `recorded.json`.
#[test]
#[ignore = "only in `cargo xtask test --all`: a minute or more of loads that nothing may disturb"]
fn the_replay_predicts_the_throttled_share_within_five_points() {
    let runs: Vec<Run> = batches().iter().flat_map(measured).collect();
    let rows = rows(&runs);
    println!("{}", table(&rows));
    let off: Vec<_> = rows.iter().filter(|row| row.is_off()).map(Row::place).collect();
    assert!(off.is_empty(), "{off:?}");
    if std::env::var_os("CPUWARDEN_BLESS").is_some() {
        write(&runs);
    }
}

/// Writes the runs, each with the readings of its trace, a run per line.
fn write(runs: &[Run]) {
    let traced = |run: &Run| {
        let readings = run.traced().map(<[_]>::to_vec).unwrap_or_default();
        serde_json::to_string(&Run { readings, ..run.clone() }).unwrap()
    };
    let lines: Vec<String> = runs.iter().map(traced).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/advice/recorded.json");
    fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
}

/// Runs a batch until the two shares agree over all its runs, at most [`POOLED`] times. A run with
/// differing shares does not count if other processes used the CPUs that its loads needed.
fn measured(batch: &Batch) -> Vec<Run> {
    let mut pooled: Vec<Run> = Vec::new();
    let mut number = 0;
    for _ in 0..ATTEMPTS {
        let (runs, waited) = run(batch);
        println!("waited for a CPU {waited:.2} of what they ran:\n{}", table(&rows(&runs)));
        // Short bursts alone give no measure of disturbance: their quotient is 0 / 0.
        let was_disturbed = waited.is_nan() || waited > UNDISTURBED;
        if was_disturbed && rows(&runs).iter().any(Row::is_off) {
            continue;
        }
        pooled.extend(runs);
        number += 1;
        if number == POOLED || !rows(&pooled).iter().any(Row::is_off) {
            return pooled;
        }
    }
    assert!(!pooled.is_empty(), "too busy a machine to measure on: see what was waited for a CPU");
    pooled
}

/// Runs each load of the batch unhindered and, at the same time, under each of its limits. Returns
/// a run per load, and the wait as a share of run time. The wait is that of the unhindered loads for
/// a CPU, plus steal time.
fn run(batch: &Batch) -> (Vec<Run>, f64) {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, "advice");
    let limits = |limits: &[f64]| [&[UNHINDERED], limits].concat();
    let cases: Vec<_> = batch
        .shapes
        .iter()
        .flat_map(|shape| limits(shape.limits).into_iter().map(move |limit| (shape, limit)))
        .collect();
    let gap = STAGGER / u32::try_from(cases.len()).unwrap();
    let began = Instant::now();
    let loads: Vec<_> = (0..)
        .zip(cases)
        .map(|(number, (shape, limit))| {
            std::thread::sleep((gap * number).saturating_sub(began.elapsed()));
            Load::start(pod.child(&format!("load-{number}")), shape, limit)
        })
        .collect();
    let (unhindered, limited): (Vec<_>, Vec<_>) =
        loads.iter().partition(|load| load.limit_cores == UNHINDERED);
    let then = (ran_and_waited_ns(&unhindered), steal_ns());
    let before: Vec<_> = limited.iter().map(|load| load.count()).collect();
    let mut runs = load::read(&unhindered, batch.length);
    for (load, before) in limited.iter().zip(before) {
        let after = load.count();
        let (periods, throttled) =
            (after.periods - before.periods, after.throttled - before.throttled);
        let at = unhindered.iter().position(|other| std::ptr::eq(other.shape, load.shape)).unwrap();
        runs[at].kernel.push((load.limit_cores, periods, throttled));
    }
    let now = (ran_and_waited_ns(&unhindered), steal_ns());
    let is_read = unhindered
        .iter()
        .zip(&runs)
        .all(|(load, run)| load.shape.load.is_empty() || run.traced().is_some());
    let waited_ns = now.0.1 - then.0.1 + now.1 - then.1;
    let waited = waited_ns as f64 / (now.0.0 - then.0.0) as f64;
    (runs, if is_read { waited } else { f64::INFINITY })
}

fn ran_and_waited_ns(loads: &[&Load<'_>]) -> (u64, u64) {
    let each = loads.iter().map(|load| load.ran_and_waited_ns());
    each.fold((0, 0), |(ran, waited), load| (ran + load.0, waited + load.1))
}

/// Steal time of all CPUs, nanoseconds: the eighth figure in the first line of `/proc/stat`, in
/// hundredths of a second.
fn steal_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    stat.split_ascii_whitespace().nth(8).unwrap().parse::<u64>().unwrap() * 10_000_000
}

/// Renders the table of `benches/README.md`.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("| load | limit | periods | throttled | replay |\n|---|---|---|---|---|\n");
    for row in rows {
        let Row { name, limit_cores, kernel, .. } = row;
        let (measured, replayed) = (row.measured() * 100.0, row.replayed() * 100.0);
        let _ = writeln!(
            text,
            "| {name} | {limit_cores} | {} | {measured:.0} % | {replayed:.0} % |",
            kernel.periods
        );
    }
    text
}
