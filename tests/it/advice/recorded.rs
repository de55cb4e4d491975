//! Loads as the agent reads them, with what the kernel counted under limits at the same time. Those
//! in `recorded.json` were measured on this kernel and CPU: Linux 6.18, cgroup v1, 250 Hz.

use analysis::{CandidateLimit, Count, READINGS, Replay, UsageTrace, UsageTraces, Window};
use serde::{Deserialize, Serialize};

use super::replay::{Row, rows, table};

/// Number of times that the windows are replayed, so that the phase at which they begin does not
/// matter.
const ROUNDS: u64 = 20;

/// One run of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) load: String,
    /// CFS period, nanoseconds.
    pub(super) period_ns: u64,
    /// Unhindered: time and CPU time used of each reading, nanoseconds.
    pub(super) readings: Vec<(u64, u64)>,
    /// Unhindered: CPU time used, nanoseconds, periods, throttled periods, and length, nanoseconds.
    pub(super) windows: Vec<(u64, u64, u64, u64)>,
    /// Under limits: cores, periods and throttled periods.
    pub(super) kernel: Vec<(f64, u32, u32)>,
}

impl Run {
    /// The readings of the first usage trace: two seconds of readings on time. The agent, too,
    /// retries until it has one. `None` if nothing ran, or if the machine was too busy for readings
    /// on time.
    pub(super) fn traced(&self) -> Option<&[(u64, u64)]> {
        let mut all = self.readings.windows(READINGS).step_by(5);
        all.find(|readings| UsageTrace::from_readings(readings).is_some())
    }

    /// Share of throttled periods that the replay finds at a limit.
    pub(super) fn replayed(&self, limit_cores: f64) -> f64 {
        let mut traces = UsageTraces::default();
        let trace = self.traced().and_then(UsageTrace::from_readings);
        trace.into_iter().for_each(|trace| traces.learn(trace));
        let bandwidth = CandidateLimit { limit_cores, burst_share: 0.0 };
        let mut replay = Replay::default();
        let mut total = Count::default();
        let windows = self.windows.iter().map(|&(used_ns, periods, throttled, length_ns)| Window {
            used_ns,
            periods: Some(periods),
            throttled_periods: Some(throttled),
            length_ns,
            period_ns: self.period_ns,
            ..Window::default()
        });
        let count = ROUNDS * self.windows.len() as u64;
        for (number, window) in (0..count).zip(windows.cycle()) {
            total = total.plus(replay.window(bandwidth, &window, &traces, number));
        }
        total.share().unwrap_or(0.0)
    }
}

/// The replay without the kernel: the same in every run, on any machine.
#[test]
fn recorded_loads_are_replayed_within_five_points() {
    let runs: Vec<Run> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let rows = rows(&runs);
    println!("{}", table(&rows));
    let loads: usize = super::shapes::batches()
        .iter()
        .flat_map(|batch| &batch.shapes)
        .map(|shape| shape.limits.len())
        .sum();
    assert_eq!(rows.len(), loads, "a load is not recorded");
    let off: Vec<_> = rows.iter().filter(|row| row.is_off()).map(Row::place).collect();
    assert!(off.is_empty(), "{off:?}");
}
