//! Compares the replay with the kernel: the share of periods that a limit would throttle, and the
//! share that it does throttle.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use analysis::Count;

use super::load::{Load, Record};
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
struct Row {
    name: &'static str,
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
    fn is_off(&self) -> bool {
        let difference = self.measured() - self.replayed();
        difference.abs() > TOLERANCE && self.median_difference().abs() > TOLERANCE
    }

    fn pool(&mut self, other: Self) {
        self.kernel = self.kernel.plus(other.kernel);
        self.runs.extend(other.runs);
    }
}

#[test]
fn one_disturbed_run_is_no_evidence_and_most_runs_are() {
    let row = |runs: &[(f64, f64)]| {
        let periods = 100 * u32::try_from(runs.len()).unwrap();
        let throttled = runs.iter().map(|(measured, _)| (measured * 100.0) as u32).sum();
        let kernel = Count { periods, throttled, ..Count::default() };
        Row { name: "a load", limit_cores: 0.5, kernel, runs: runs.to_vec() }
    };
    let (disturbed, agreeing, wrong) = ((0.5, 0.9), (0.85, 0.88), (0.8, 0.9));
    assert!(row(&[disturbed]).is_off());
    assert!(!row(&[disturbed, agreeing, agreeing, agreeing]).is_off());
    assert!(row(&[wrong, wrong, wrong, agreeing]).is_off());
}

#[test]
fn the_replay_predicts_the_throttled_share_within_five_points() {
    let rows: Vec<Row> = batches().iter().flat_map(measured).collect();
    println!("{}", table(&rows));
    let off: Vec<_> =
        rows.iter().filter(|row| row.is_off()).map(|row| (row.name, row.limit_cores)).collect();
    assert!(off.is_empty(), "{off:?}");
}

/// Runs a batch until the two shares agree over all its runs, at most [`POOLED`] times. A run with
/// differing shares does not count if other processes used the CPUs that its loads needed.
fn measured(batch: &Batch) -> Vec<Row> {
    let mut pooled: Vec<Row> = Vec::new();
    let mut runs = 0;
    for _ in 0..ATTEMPTS {
        let (rows, waited) = run(batch);
        println!("waited for a CPU {waited:.2} of what they ran:\n{}", table(&rows));
        // Short bursts alone give no measure of disturbance: their quotient is 0 / 0.
        let was_disturbed = waited.is_nan() || waited > UNDISTURBED;
        if was_disturbed && rows.iter().any(Row::is_off) {
            continue;
        }
        if pooled.is_empty() {
            pooled = rows;
        } else {
            pooled.iter_mut().zip(rows).for_each(|(all, row)| all.pool(row));
        }
        runs += 1;
        if runs == POOLED || !pooled.iter().any(Row::is_off) {
            return pooled;
        }
    }
    assert!(!pooled.is_empty(), "too busy a machine to measure on: see what was waited for a CPU");
    pooled
}

/// Runs each load of the batch unhindered and, at the same time, under each of its limits. Returns
/// the rows and the wait as a share of run time. The wait is that of the unhindered loads for a
/// CPU, plus steal time.
fn run(batch: &Batch) -> (Vec<Row>, f64) {
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
    let records = Record::take(&unhindered, batch.length);
    let rows = limited.iter().zip(before).map(|(load, before)| {
        let after = load.count();
        let (periods, throttled) =
            (after.periods - before.periods, after.throttled - before.throttled);
        let kernel = Count { periods, throttled, ..Count::default() };
        let at = unhindered.iter().position(|other| std::ptr::eq(other.shape, load.shape)).unwrap();
        let replayed = records[at].replayed(load.limit_cores);
        Row {
            name: load.shape.name,
            limit_cores: load.limit_cores,
            kernel,
            runs: vec![(kernel.share().unwrap_or(0.0), replayed)],
        }
    });
    let rows = rows.collect();
    let now = (ran_and_waited_ns(&unhindered), steal_ns());
    let is_read = unhindered
        .iter()
        .zip(&records)
        .all(|(load, record)| load.shape.load.is_empty() || record.trace().is_some());
    let waited_ns = now.0.1 - then.0.1 + now.1 - then.1;
    let waited = waited_ns as f64 / (now.0.0 - then.0.0) as f64;
    (rows, if is_read { waited } else { f64::INFINITY })
}

fn ran_and_waited_ns(loads: &[&Load<'_>]) -> (u64, u64) {
    let each = loads.iter().map(|load| load.ran_and_waited_ns());
    each.fold((0, 0), |(ran, waited), load| (ran + load.0, waited + load.1))
}

/// Steal time of all CPUs, nanoseconds: the eighth figure in the first line of `/proc/stat`, in
/// hundredths of a second.
fn steal_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.split_ascii_whitespace().nth(8).unwrap().parse::<u64>().unwrap() * 10_000_000
}

/// Renders the table of `benches/README.md`.
fn table(rows: &[Row]) -> String {
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
