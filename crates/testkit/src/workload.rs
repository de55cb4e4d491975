//! What a process does in a cgroup, and how this binary becomes such a process.

use std::io::{self, Read as _, Write as _};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{Cgroup, READY, Running, load};

const VARIABLE: &str = "CPUWARDEN_WORKLOAD";
/// Name of the ignored test that becomes the process, see [`Workload::run_process`].
const TEST: &str = "workload_process";
/// Between the workloads of one process.
const AND: &str = ", ";

/// Work of threads until their process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// No work.
    Idle,
    /// This number of threads runs without a pause, each on a CPU of its own.
    Spin {
        /// Number of threads.
        threads: u32,
    },
    /// One thread runs without a pause on any CPU.
    Roam,
    /// This number of threads runs for the given CPU time each, at the start of each interval.
    Burst {
        /// Number of threads.
        threads: u32,
        /// CPU time of a burst.
        cpu: Duration,
        /// Interval between the starts of bursts.
        every: Duration,
    },
}

impl Workload {
    /// Starts the threads in this process.
    pub fn begin(self) {
        let first = Instant::now();
        match self {
            Self::Idle => {}
            Self::Spin { threads } => {
                (0..threads).for_each(|at| drop(std::thread::spawn(move || spin(at))));
            }
            Self::Roam => drop(std::thread::spawn(|| load::spin())),
            Self::Burst { threads, cpu, every } => {
                (0..threads)
                    .for_each(|_| drop(std::thread::spawn(move || load::burst(first, cpu, every))));
            }
        }
    }

    /// Reports that this process is ready, waits for a line on standard input, works, and returns
    /// when standard input ends, which it does however the process that started this one ends.
    ///
    /// # Errors
    /// The standard streams are closed.
    pub fn run(all: &[Self]) -> io::Result<()> {
        // libtest may have begun a line.
        writeln!(io::stdout(), "\n{READY}")?;
        io::stdout().flush()?;
        if io::stdin().read(&mut [0])? == 0 {
            return Ok(());
        }
        all.iter().for_each(|workload| workload.begin());
        let _ = io::stdin().read(&mut [0])?;
        Ok(())
    }

    /// Body of the ignored test with which a test binary becomes the process of a workload:
    ///
    /// ```ignore
    /// #[test]
    /// #[ignore = "not a test: the process of a workload"]
    /// fn workload_process() {
    ///     testkit::Workload::run_process();
    /// }
    /// ```
    pub fn run_process() {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let all: Result<Vec<_>, _> = text.split(AND).map(str::parse).collect();
        let all = all.unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
        Self::run(&all).unwrap_or_else(|error| panic!("the process of a workload: {error}"));
        std::process::exit(0);
    }

    /// Words of a command that makes this binary the process of these workloads; it waits for
    /// [`Running::go`].
    #[must_use]
    pub fn words(all: &[Self]) -> Vec<String> {
        let texts: Vec<_> = all.iter().map(Self::to_string).collect();
        let binary = std::env::current_exe().expect("this binary has a path");
        let run = ["--ignored", "--nocapture", TEST].map(str::to_owned);
        ["env".to_owned(), format!("{VARIABLE}={}", texts.join(AND)), binary.display().to_string()]
            .into_iter()
            .chain(run)
            .collect()
    }
}

impl Cgroup {
    /// Starts a workload in this cgroup and returns as soon as it runs.
    #[must_use]
    pub fn spawn(&self, workload: &Workload) -> Running {
        let words = Workload::words(&[*workload]);
        let mut command = self.command(&words[0]);
        command.args(&words[1..]);
        let mut running = Running::start(command, |line| line == READY).0;
        running.go();
        running
    }
}

/// Spins on the CPU with index `at` (modulo their number) of those this process may use, so that
/// the load balancer of a busy machine has no influence.
fn spin(at: u32) -> ! {
    let allowed = sched_getaffinity(None).expect("a thread's own affinity can be read");
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut one = CpuSet::new();
    one.set(cpus[at as usize % cpus.len()]);
    sched_setaffinity(None, &one).expect("a thread's own affinity can be narrowed");
    load::spin()
}

impl std::fmt::Display for Workload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Idle => formatter.write_str("idle"),
            Self::Spin { threads } => write!(formatter, "spin {threads}"),
            Self::Roam => formatter.write_str("roam"),
            Self::Burst { threads, cpu, every } => {
                write!(formatter, "burst {threads} {} {}", cpu.as_micros(), every.as_micros())
            }
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u32>().map_err(|error| error.to_string());
        let time = |word: &str| number(word).map(|usec| Duration::from_micros(usec.into()));
        match words[..] {
            ["idle"] => Ok(Self::Idle),
            ["spin", threads] => Ok(Self::Spin { threads: number(threads)? }),
            ["roam"] => Ok(Self::Roam),
            ["burst", threads, cpu, every] => {
                Ok(Self::Burst { threads: number(threads)?, cpu: time(cpu)?, every: time(every)? })
            }
            _ => Err(format!("not a workload: {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_the_same_after_its_text() {
        let burst = Workload::Burst {
            threads: 3,
            cpu: Duration::from_micros(1),
            every: Duration::from_millis(1030),
        };
        for workload in [Workload::Idle, Workload::Spin { threads: 2 }, Workload::Roam, burst] {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        assert!("burst 1 2".parse::<Workload>().is_err());
    }
}
