//! Load of the benches about co-location and burst, each in a process of its own cgroup: an
//! open-loop service, whose requests are due at times fixed in advance, and spinners whose work is
//! counted.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::load::use_cpu;
use testkit::{Cgroup, READY, Running};

const ROLE: &str = "CPUWARDEN_BENCH_ROLE";

/// Requests of the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    /// Number of threads that answer.
    pub(crate) threads: usize,
    /// Time between two groups of requests.
    pub(crate) every: Duration,
    /// Number of requests that are due at the same time.
    pub(crate) group: u32,
    /// CPU time of one request.
    pub(crate) work: Duration,
}

impl Service {
    /// Starts the service in the cgroup. It writes its latencies to the file. Its first request is
    /// due when this returns.
    pub(crate) fn start(&self, cgroup: &Cgroup, file: &Path) -> Running {
        let Self { threads, every, group, work } = self;
        let (every, work) = (every.as_micros(), work.as_micros());
        let numbers = [*threads as u128, every, u128::from(*group), work];
        start(cgroup, "service", file, &numbers.map(|number| number.to_string()))
    }
}

/// Starts one spinner per CPU in the cgroup. They write the rounds of their work to the file.
pub(crate) fn start_spinners(cgroup: &Cgroup, file: &Path) -> Running {
    start(cgroup, "spinners", file, &[])
}

/// Rounds of work that the spinners have done, in millions.
pub(crate) fn rounds_done(file: &Path) -> f64 {
    let counts = std::fs::read(file).unwrap();
    let counts = counts.chunks_exact(8).map(|count| u64::from_ne_bytes(count.try_into().unwrap()));
    counts.sum::<u64>() as f64 / 1e6
}

/// Latencies of the requests that were due in a time span.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latencies {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) answers_per_second: f64,
}

impl Latencies {
    /// Reads the file of a service. `from` and `to` are times after its start.
    pub(crate) fn read(file: &Path, from: Duration, to: Duration) -> Self {
        let text = std::fs::read_to_string(file).unwrap();
        let stretch = from.as_micros() as u64..to.as_micros() as u64;
        // The last line may be incomplete.
        let answers = text.lines().filter_map(|line| {
            let (due, latency) = line.strip_suffix('.')?.split_once(' ')?;
            Some((due.parse::<u64>().ok()?, latency.parse::<u64>().ok()?))
        });
        let due = answers.filter(|(due, _)| stretch.contains(due));
        let mut latencies: Vec<u64> = due.map(|(_, latency)| latency).collect();
        latencies.sort_unstable();
        let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize] as f64 / 1000.0;
        let answers_per_second = latencies.len() as f64 / (to - from).as_secs_f64();
        Self { p50_ms: at(0.5), p99_ms: at(0.99), answers_per_second }
    }
}

fn start(cgroup: &Cgroup, role: &str, file: &Path, arguments: &[String]) -> Running {
    let mut command = cgroup.command(std::env::current_exe().unwrap());
    command.arg(file).args(arguments).env(ROLE, role);
    Running::start(command, |line| line == READY).0
}

/// Runs the load of this process, if it is one; then it does not return.
pub(crate) fn run_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut arguments = std::env::args().skip(1);
    let file = File::create(arguments.next().unwrap()).unwrap();
    if role == "service" {
        let numbers: Vec<u64> = arguments.map(|number| number.parse().unwrap()).collect();
        serve(&file, &numbers);
    } else {
        spin(file);
    }
    // Exits with the bench that started it, however the bench ends.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Answers requests, each with a line in the file: when it was due, and its latency since then, in
/// microseconds.
fn serve(file: &File, numbers: &[u64]) {
    let &[threads, every_usec, group, work_usec] = numbers else { panic!("{numbers:?}") };
    println!("{READY}");
    let first = Instant::now();
    let file: &'static File = Box::leak(Box::new(file.try_clone().unwrap()));
    let next: &'static AtomicU64 = Box::leak(Box::default());
    for _ in 0..threads {
        std::thread::spawn(move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let due = Duration::from_micros(number / group * every_usec);
                std::thread::sleep(due.saturating_sub(first.elapsed()));
                use_cpu(Duration::from_micros(work_usec));
                let latency = first.elapsed() - due;
                let line = format!("{} {}.\n", due.as_micros(), latency.as_micros());
                let mut file = file;
                file.write_all(line.as_bytes()).unwrap();
            }
        });
    }
}

/// Spins on each CPU, and writes the number of rounds to the file, one number per thread.
fn spin(file: File) {
    const ROUNDS: u64 = 100_000;
    let file: &'static File = Box::leak(Box::new(file));
    println!("{READY}");
    for at in 0..std::thread::available_parallelism().unwrap().get() as u64 {
        std::thread::spawn(move || {
            for done in 1_u64.. {
                work(ROUNDS);
                file.write_all_at(&(done * ROUNDS).to_ne_bytes(), at * 8).unwrap();
            }
        });
    }
}

fn work(rounds: u64) {
    let mut state = 1_u64;
    for _ in 0..rounds {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
