//! A load in its own cgroup, and its measurements.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use analysis::{
    CandidateLimit, Count, READ_EVERY_NS, READINGS, Replay, UsageTrace, UsageTraces, Window,
};

use super::shapes::Shape;
use crate::support::{Cgroup, Running, Workload};

const READ_EVERY: Duration = Duration::from_nanos(READ_EVERY_NS);
const READINGS_A_WINDOW: usize = 50;

/// Minimum CPU time of a long burst: one that is lengthened, not only moved, by waiting for a CPU.
const LONG: Duration = Duration::from_millis(10);

/// Number of times that the windows are replayed, so that the phase at which they begin does not
/// matter.
const ROUNDS: u64 = 20;

/// A load under a limit.
pub(super) struct Load<'a> {
    pub(super) shape: &'a Shape,
    pub(super) limit_cores: f64,
    cgroup: Cgroup,
    running: Vec<Running>,
}

impl<'a> Load<'a> {
    /// Starts the load in this cgroup with the limit.
    pub(super) fn start(cgroup: Cgroup, shape: &'a Shape, limit_cores: f64) -> Self {
        let period_usec = shape.period.as_micros() as u64;
        cgroup.set_quota_usec((limit_cores * period_usec as f64) as u64, period_usec);
        let running = shape.load.iter().map(|load| cgroup.spawn(load)).collect();
        Self { shape, limit_cores, cgroup, running }
    }

    /// Reads the kernel's counters.
    pub(super) fn count(&self) -> Count {
        let stat = self.cgroup.cpu_stat();
        let number = |key: &str| u32::try_from(stat[key]).unwrap();
        Count {
            periods: number("nr_periods"),
            throttled: number("nr_throttled"),
            ..Count::default()
        }
    }

    /// Returns the CPU time used, nanoseconds.
    fn used_ns(&self) -> u64 {
        self.cgroup.usage_ns()
    }

    /// Run time and wait for a CPU of the threads with long bursts, nanoseconds, from `schedstat`.
    /// Waiting lengthens a long burst; it only moves a short one.
    pub(super) fn ran_and_waited_ns(&self) -> (u64, u64) {
        let is_long = |load: &Workload| !matches!(load, Workload::Burst { cpu, .. } if *cpu < LONG);
        let long = self.shape.load.iter().zip(&self.running).filter(|(load, _)| is_long(load));
        let tasks = long.flat_map(|(_, running)| {
            fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap()
        });
        tasks.fold((0, 0), |(ran, waited), task| {
            let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            let mut figures = text.split(' ').map(|figure| figure.parse::<u64>().unwrap_or(0));
            (ran + figures.next().unwrap(), waited + figures.next().unwrap())
        })
    }
}

/// The agent's view of one container: readings for its usage trace, and its windows.
#[derive(Default)]
pub(super) struct Record {
    readings: Vec<(u64, u64)>,
    windows: Vec<Window>,
}

impl Record {
    /// Reads the loads for this time, as the agent does.
    pub(super) fn take(loads: &[&Load<'_>], length: Duration) -> Vec<Self> {
        let mut records: Vec<_> = loads.iter().map(|_| Self::default()).collect();
        let mut marks: Vec<_> =
            loads.iter().map(|load| (0, load.used_ns(), load.count())).collect();
        read_in_time();
        let began = Instant::now();
        for tick in 0..=(length.as_nanos() / READ_EVERY.as_nanos()) as usize {
            std::thread::sleep((READ_EVERY * tick as u32).saturating_sub(began.elapsed()));
            for ((record, load), mark) in records.iter_mut().zip(loads).zip(&mut marks) {
                let (at_ns, used_ns) = (began.elapsed().as_nanos() as u64, load.used_ns());
                record.readings.push((at_ns, used_ns));
                if tick > 0 && tick.is_multiple_of(READINGS_A_WINDOW) {
                    let now = (at_ns, used_ns, load.count());
                    let period_ns = load.shape.period.as_nanos() as u64;
                    record
                        .windows
                        .push(Window { period_ns, ..window(std::mem::replace(mark, now), now) });
                }
            }
        }
        std::thread::sleep(length.saturating_sub(began.elapsed()));
        records
    }

    /// The first usage trace: two seconds of readings on time. The agent, too, retries until it has
    /// one. `None` if nothing ran, or if this machine was too busy for readings on time.
    pub(super) fn trace(&self) -> Option<UsageTrace> {
        self.readings.windows(READINGS).step_by(5).find_map(UsageTrace::from_readings)
    }

    /// Share of throttled periods that the replay finds at a limit.
    pub(super) fn replayed(&self, limit_cores: f64) -> f64 {
        let mut traces = UsageTraces::default();
        self.trace().into_iter().for_each(|trace| traces.learn(trace));
        let bandwidth = CandidateLimit { limit_cores, burst_share: 0.0 };
        let mut replay = Replay::default();
        let mut total = Count::default();
        for (number, window) in
            (0..ROUNDS * self.windows.len() as u64).zip(self.windows.iter().cycle())
        {
            total = total.plus(replay.window(bandwidth, window, &traces, number));
        }
        total.share().unwrap_or(0.0)
    }
}

/// Gives this thread, but not its children, real-time priority, so that a busy machine does not
/// delay its readings.
fn read_in_time() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt")
        .args(["--reset-on-fork", "--fifo", "--pid", "1", &thread])
        .status()
        .unwrap();
    assert!(status.success(), "chrt (util-linux) needs CAP_SYS_NICE: {status}");
}

/// The window between two readings of time, CPU time used and counters.
fn window(then: (u64, u64, Count), now: (u64, u64, Count)) -> Window {
    Window {
        used_ns: now.1 - then.1,
        periods: Some((now.2.periods - then.2.periods).into()),
        throttled_periods: Some((now.2.throttled - then.2.throttled).into()),
        length_ns: now.0 - then.0,
        ..Window::default()
    }
}
