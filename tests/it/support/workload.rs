//! Load in a cgroup: this test binary again, running [`workload_process`].

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;
use super::http;

const VARIABLE: &str = "CPUWARDEN_IT_WORKLOAD";
/// Line that a program prints when it is working.
pub(crate) const READY: &str = "workload is running";

/// About a second, but not a multiple of the CFS period. The kernel keeps the grid of its periods
/// while a cgroup is idle. So bursts in step with it would all meet the refill at the same point,
/// and in one of ten runs none would be throttled.
pub(crate) const BURST_EVERY: Duration = Duration::from_millis(1030);

/// Work of a workload's threads until they are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// This number of threads runs without a pause.
    Spin { threads: u32 },
    /// This number of threads runs for the given CPU time each, at the start of each interval.
    Burst { threads: u32, cpu: Duration, every: Duration },
    /// This number of threads reads the agent's metrics without a pause.
    Scrape { clients: u32, address: SocketAddr },
}

/// A process in a cgroup, killed on drop. It must run until then: an early exit fails its test.
pub(crate) struct Running {
    child: Child,
}

impl Cgroup {
    /// Starts a workload in this cgroup and returns as soon as it runs.
    pub(crate) fn spawn(&self, workload: &Workload) -> Running {
        let mut command = self.command(std::env::current_exe().unwrap());
        command.args([
            "support::workload::workload_process",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        command.env(VARIABLE, workload.to_string());
        Running::start(command, |line| line == READY).0
    }

    /// A program in this cgroup. A shell enters the cgroup and then executes the program, which so
    /// uses no CPU time elsewhere.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let enter =
            r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", enter, "sh"])
            .args(self.dirs().iter().map(|directory| directory.join("cgroup.procs")));
        command.arg("--").arg(program);
        command
    }
}

impl Running {
    /// Starts the command and returns its output up to the line that reports that it runs. The
    /// command must exit at the end of its standard input.
    pub(crate) fn start(mut command: Command, is_ready: impl Fn(&str) -> bool) -> (Self, String) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let running = Self { child };
        let mut printed = String::new();
        loop {
            let start = printed.len();
            let length = output.read_line(&mut printed).unwrap();
            assert!(
                length > 0,
                "{command:?} ended before it was ready; is it installed? It printed: {printed}"
            );
            if is_ready(printed[start..].trim_end_matches('\n')) {
                break;
            }
        }
        // A program that prints into a closed pipe dies, and libtest prints that a workload's test
        // takes over a minute.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        (running, printed)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let early = self.child.try_wait().unwrap_or_default();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(status) = early.filter(|_| !std::thread::panicking()) {
            panic!(
                "process {} ended before its test did, so the test measured an idle cgroup: {status}",
                self.pid()
            );
        }
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Spin { threads } => write!(formatter, "spin {threads}"),
            Self::Burst { threads, cpu, every } => {
                write!(formatter, "burst {threads} {} {}", cpu.as_micros(), every.as_micros())
            }
            Self::Scrape { clients, address } => write!(formatter, "scrape {clients} {address}"),
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
            ["spin", threads] => Ok(Self::Spin { threads: number(threads)? }),
            ["burst", threads, cpu, every] => {
                Ok(Self::Burst { threads: number(threads)?, cpu: time(cpu)?, every: time(every)? })
            }
            ["scrape", clients, address] => {
                let address = address.parse().map_err(|_| format!("no address: {address}"))?;
                Ok(Self::Scrape { clients: number(clients)?, address })
            }
            _ => Err(format!("no workload: {text}")),
        }
    }
}

#[test]
#[ignore = "not a test: the process of a workload, started by Cgroup::spawn"]
fn workload_process() {
    let workload: Workload = std::env::var(VARIABLE).unwrap().parse().unwrap();
    match workload {
        Workload::Spin { threads } => {
            (0..threads).for_each(|at| drop(std::thread::spawn(move || spin(at))));
        }
        Workload::Burst { threads, cpu, every } => {
            let first = Instant::now();
            (0..threads).for_each(|_| {
                drop(std::thread::spawn(move || testkit::load::burst(first, cpu, every)));
            });
        }
        Workload::Scrape { clients, address } => {
            (0..clients).for_each(|_| drop(std::thread::spawn(move || scrape(address))));
        }
    }
    println!("\n{READY}");
    // Ends with the test that started it, however that ends.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Spins on the CPU with index `at` (modulo their number) of those this process may use, so that
/// the load balancer of a busy machine has no influence.
fn spin(at: u32) -> ! {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpus[at as usize % cpus.len()]);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    testkit::load::spin()
}

fn scrape(address: SocketAddr) {
    loop {
        // The test judges the answers by the agent's own counters.
        let _ = http::get(address, "/metrics");
    }
}
