//! A load in its own cgroup, and its measurements.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use analysis::{Count, READ_EVERY_NS};

use super::recorded::Run;
use super::shapes::Shape;
use crate::support::{Cgroup, Running, Workload};

const READ_EVERY: Duration = Duration::from_nanos(READ_EVERY_NS);
const READINGS_A_WINDOW: usize = 50;

/// Minimum CPU time of a long burst: one that is lengthened, not only moved, by waiting for a CPU.
const LONG: Duration = Duration::from_millis(10);

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

    /// A run of it, without readings.
    fn run(&self) -> Run {
        Run {
            load: self.shape.name.to_owned(),
            period_ns: self.shape.period.as_nanos() as u64,
            readings: Vec::new(),
            windows: Vec::new(),
            kernel: Vec::new(),
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

/// Reads the loads for this time, as the agent does: readings for a usage trace, and windows.
pub(super) fn read(loads: &[&Load<'_>], length: Duration) -> Vec<Run> {
    let mut runs: Vec<_> = loads.iter().map(|load| load.run()).collect();
    let mut marks: Vec<_> = loads.iter().map(|load| (0, load.used_ns(), load.count())).collect();
    read_in_time();
    let began = Instant::now();
    for tick in 0..=(length.as_nanos() / READ_EVERY.as_nanos()) as usize {
        std::thread::sleep((READ_EVERY * tick as u32).saturating_sub(began.elapsed()));
        for ((run, load), mark) in runs.iter_mut().zip(loads).zip(&mut marks) {
            let (at_ns, used_ns) = (began.elapsed().as_nanos() as u64, load.used_ns());
            run.readings.push((at_ns, used_ns));
            if tick > 0 && tick.is_multiple_of(READINGS_A_WINDOW) {
                let now = (at_ns, used_ns, load.count());
                run.windows.push(window(std::mem::replace(mark, now), now));
            }
        }
    }
    std::thread::sleep(length.saturating_sub(began.elapsed()));
    runs
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

/// CPU time used, periods, throttled periods and length of the window between two readings of time,
/// CPU time used and counters.
fn window(then: (u64, u64, Count), now: (u64, u64, Count)) -> (u64, u64, u64, u64) {
    (
        now.1 - then.1,
        (now.2.periods - then.2.periods).into(),
        (now.2.throttled - then.2.throttled).into(),
        now.0 - then.0,
    )
}
