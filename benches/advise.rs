//! Cost of the advice. Cases:
//!
//! - memory of 6 h of one-second windows of 500 containers, each with a quota (target: at most 16
//!   MiB)
//! - one minute of windows of 500 containers through every candidate: idle, bursts, and busy in
//!   every period; the latter two also with a usage trace (target: 50 ms per minute); bursts that
//!   no trace resembles; and bursts in CFS periods of 10 ms, of which a window has ten times as
//!   many
//! - detection of a new process's runtime (target: 100 µs), with an executable seen for the first
//!   time and a known one: this bench, `sleep`, and the installed ones of a JVM, Node.js and Python
//!
//! `cargo bench --bench advise`

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use analysis::{History, READ_EVERY_NS, READINGS, REPLAYED_SECONDS, UsageTrace, Window};
use runtimes::{Detector, Machine};

const CONTAINERS: usize = 500;
const MINUTE: usize = 60;
const ROUNDS: usize = 9;

fn main() {
    let mib = (CONTAINERS * History::bytes_when_full()) as f64 / f64::from(1 << 20);
    println!("{CONTAINERS} containers, {REPLAYED_SECONDS} seconds each: {mib:.1} MiB when full");
    assert!(mib <= 16.0, "more memory than promised");
    let window = |used_ms: u64, periods| Window {
        used_ns: used_ms * 1_000_000,
        periods: Some(periods),
        throttled_periods: Some(0),
        length_ns: 1_000_000_000,
        ..Window::default()
    };
    // Number of parallel threads, busy readings out of each twelve, and CPU time of a window, ms.
    let shaped = |threads: u64, busy: u64, used_ms, periods| {
        (window(used_ms, periods), Some(shape(threads, busy)))
    };
    let short = (Window { period_ns: 10_000_000, ..window(170, 60) }, Some(shape(2, 1)));
    let cases = [
        ("idle", (window(0, 0), None)),
        ("a burst of 30 ms", (window(30, 2), None)),
        ("busy", (window(1700, 10), None)),
        ("bursts with their trace", shaped(2, 1, 170, 6)),
        ("busy with its trace", shaped(2, 10, 1700, 10)),
        ("bursts unlike the trace", shaped(2, 1, 1000, 10)),
        ("bursts in periods of 10 ms", short),
    ];
    for (name, (window, shape)) in cases {
        let mut histories = vec![History::default(); CONTAINERS];
        histories
            .iter_mut()
            .for_each(|history| shape.iter().for_each(|shape| history.learn(shape.clone())));
        let mut times: Vec<_> = (0..ROUNDS).map(|_| minute_ms(&mut histories, &window)).collect();
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.1} ms a minute, median of {ROUNDS}", times[ROUNDS / 2]);
    }
    detection("this bench", std::process::id());
    for line in PROGRAMS {
        match Program::start(line) {
            Some(program) => detection(line[0], program.child.id()),
            None => println!("{}: is not here", line[0]),
        }
    }
}

/// A two-second trace of `threads` threads that run in the first `busy` of each twelve readings.
fn shape(threads: u64, busy: u64) -> UsageTrace {
    let mut used_ns = 0;
    let readings: Vec<_> = (0..READINGS as u64)
        .map(|at| {
            used_ns += if at % 12 < busy { threads * READ_EVERY_NS } else { 0 };
            (at * READ_EVERY_NS, used_ns)
        })
        .collect();
    UsageTrace::from_readings(&readings).expect("the readings are dense")
}

/// Programs that wait for their input.
const PROGRAMS: [&[&str]; 4] = [
    &["sleep", "1000"],
    &["java", "-m", "java.base/sun.security.tools.keytool.Main", "-printcert"],
    &["node", "-e", "process.stdin.resume()"],
    &["python3", "-c", "import sys; sys.stdin.read()"],
];

const DETECTIONS: usize = 1001;
/// Longer than any of them takes to load its libraries.
const START: Duration = Duration::from_secs(2);

struct Program {
    child: Child,
}

impl Program {
    fn start(line: &[&str]) -> Option<Self> {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let program = Self { child: command.spawn().ok()? };
        std::thread::sleep(START);
        Some(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn detection(name: &str, pid: u32) {
    let machine = Machine { cpus: Some(2), limit_cores: Some(1.0), first_limit_cores: Some(1.0) };
    let median_us = |is_first: bool| {
        let mut known = Detector::new("/proc".into());
        let mut times: Vec<_> = (0..DETECTIONS)
            .map(|_| {
                let mut fresh = Detector::new("/proc".into());
                // A PID that does not exist: this only starts the detector's thread.
                fresh.detect(u32::MAX, machine);
                let detector = if is_first { &mut fresh } else { &mut known };
                let began = Instant::now();
                black_box(detector.detect(black_box(pid), machine));
                began.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[DETECTIONS / 2]
    };
    let (first, again) = (median_us(true), median_us(false));
    let found = Detector::new("/proc".into()).detect(pid, machine).unwrap_or_default();
    let version = found.version.unwrap_or_default();
    println!(
        "{name} ({} {version}): {first:.0} µs for a new executable, {again:.0} µs for a known one, medians of {DETECTIONS}",
        found.language.as_str(),
    );
}

fn minute_ms(histories: &mut [History], window: &Window) -> f64 {
    let began = Instant::now();
    for _ in 0..MINUTE {
        histories.iter_mut().for_each(|history| history.push(black_box(window), Some(2.0)));
    }
    began.elapsed().as_secs_f64() * 1000.0
}
