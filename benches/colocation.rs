//! A latency service beside best-effort spinners, under each rule of `--best-effort`. Needs root,
//! writable cgroups and BTF; takes 10 minutes.
//!
//! The service (a Burstable pod that requests half a core) answers 100 requests per second at fixed
//! times, each with 3 ms of work, by two threads; a request's latency counts from the time at which
//! it was due. Best effort is one spinner per CPU, with the weights that the kubelet sets. Cases, in
//! turn, each measured for 45 seconds and twice: the service alone; both without the agent; with the
//! utilization rule (trace off); with the wait rule (trace on).
//!
//! Printed: p50 and p99 of the service, its answers per second, and the CPU time of best effort.
//! With CPUWARDEN_CHART=FILE.svg also a chart.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::{Agent, Cgroup, Kubelet, Qos, READY, RealTree, Running, pod_list, running_pod};

const ROLE: &str = "CPUWARDEN_BENCH_ROLE";
const SERVICE_THREADS: u64 = 2;
const EVERY: Duration = Duration::from_millis(10);
const WORK: Duration = Duration::from_millis(3);
const SETTLE: Duration = Duration::from_secs(15);
const SPAN: Duration = Duration::from_secs(45);
const ROUNDS: usize = 2;

const SERVICE: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0201";
const BATCH: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0202";
const SERVICE_ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650201";
const BATCH_ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650202";

/// Load and rule beside the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Alone,
    Off,
    Utilization,
    Waits,
}

const CASES: [Case; 4] = [Case::Alone, Case::Off, Case::Utilization, Case::Waits];

impl Case {
    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "service alone",
            Self::Off => "beside best effort, off",
            Self::Utilization => "utilization rule",
            Self::Waits => "wait rule",
        }
    }

    /// Option of the agent, if one runs.
    const fn trace(self) -> Option<&'static str> {
        match self {
            Self::Alone | Self::Off => None,
            Self::Utilization => Some("off"),
            Self::Waits => Some("on"),
        }
    }
}

/// Figures of one case.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    answers: f64,
    batch_cores: f64,
}

fn main() {
    match std::env::var(ROLE).as_deref() {
        Ok("service") => serve(),
        Ok(_) => spin(),
        Err(_) => measure_all(),
    }
}

fn measure_all() {
    let mut all = vec![Vec::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (case, figures) in CASES.iter().zip(&mut all) {
            let measured = measure(*case);
            println!("{:24} {measured:?}", case.name());
            figures.push(measured);
        }
    }
    println!(
        "\n| case | p50 | p99 | answers per second | CPUs of best effort |\n|---|---|---|---|---|"
    );
    let means: Vec<Figures> = all.iter().map(|figures| mean(figures)).collect();
    for (case, figures) in CASES.iter().zip(&means) {
        let Figures { p50_ms, p99_ms, answers, batch_cores } = figures;
        let name = case.name();
        println!("| {name} | {p50_ms:.1} ms | {p99_ms:.1} ms | {answers:.0} | {batch_cores:.2} |");
    }
    if let Some(path) = std::env::var_os("CPUWARDEN_CHART") {
        std::fs::write(path, chart(&means)).unwrap();
    }
}

fn mean(figures: &[Figures]) -> Figures {
    let of =
        |value: fn(&Figures) -> f64| figures.iter().map(value).sum::<f64>() / figures.len() as f64;
    Figures {
        p50_ms: of(|figures| figures.p50_ms),
        p99_ms: of(|figures| figures.p99_ms),
        answers: of(|figures| figures.answers),
        batch_cores: of(|figures| figures.batch_cores),
    }
}

fn measure(case: Case) -> Figures {
    let tree = RealTree::new();
    let (service_pod, batch_pod) =
        (tree.pod(Qos::Burstable, SERVICE), tree.pod(Qos::BestEffort, BATCH));
    // A request of 500m, and none: pkg/kubelet/cm writes these shares.
    for cgroup in [&tree.kubepods().existing_child("burstable"), &service_pod] {
        cgroup.set_weight(512);
    }
    for cgroup in [&tree.kubepods().existing_child("besteffort"), &batch_pod] {
        cgroup.set_weight(2);
    }
    let (service, batch) = (service_pod.child(SERVICE_ID), batch_pod.child(BATCH_ID));
    service.set_weight(512);
    batch.set_weight(2);
    let mut best_effort = running_pod(BATCH, "test", "batch", BATCH_ID);
    best_effort["status"]["qosClass"] = json!("BestEffort");
    let kubelet = Kubelet::start(pod_list(&[
        running_pod(SERVICE, "test", "service", SERVICE_ID),
        best_effort,
    ]));
    let state = tempfile::tempdir().unwrap();
    let _batch = (case != Case::Alone).then(|| start(&batch, "batch", ""));
    let _agent = case.trace().map(|trace| {
        let own = [
            format!("--kubepods={}", tree.kubepods().path().display()),
            format!("--state-dir={}", state.path().display()),
            "--best-effort=enforce".to_owned(),
            format!("--sched-trace={trace}"),
        ];
        Agent::start(&[kubelet.flags(), own.to_vec()].concat())
    });
    std::thread::sleep(SETTLE);
    let file = state.path().join("latencies");
    let running = start(&service, "service", file.to_str().unwrap());
    // The first requests warm the service up; the agent decides in this time, too.
    std::thread::sleep(SETTLE);
    let before = (Instant::now(), batch.usage_ns());
    std::thread::sleep(SPAN);
    let (elapsed, used) = (before.0.elapsed(), batch.usage_ns() - before.1);
    drop(running);
    figures(&std::fs::read_to_string(&file).unwrap(), used as f64 / elapsed.as_nanos() as f64)
}

fn start(cgroup: &Cgroup, role: &str, argument: &str) -> Running {
    let mut command = cgroup.command(std::env::current_exe().unwrap());
    command.arg(argument).env(ROLE, role);
    Running::start(command, |line| line == READY).0
}

/// Figures of the answers in the file: microseconds after the start and of latency.
fn figures(text: &str, batch_cores: f64) -> Figures {
    let settled = SETTLE.as_micros() as u64;
    let answers = text.lines().filter_map(|line| {
        let (due, latency) = line.split_once(' ')?;
        Some((due.parse::<u64>().ok()?, latency.parse::<u64>().ok()?))
    });
    let mut latencies: Vec<u64> = answers
        .filter(|(due, _)| (settled..settled + SPAN.as_micros() as u64).contains(due))
        .map(|(_, latency)| latency)
        .collect();
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize] as f64 / 1000.0;
    let answers = latencies.len() as f64 / SPAN.as_secs_f64();
    Figures { p50_ms: at(0.5), p99_ms: at(0.99), answers, batch_cores }
}

/// The service: answers requests at fixed times and writes each latency to the file.
fn serve() {
    let file = std::env::args().nth(1).unwrap();
    let file = std::sync::Mutex::new(std::fs::File::create(file).unwrap());
    println!("{READY}");
    let rounds = calibrated();
    let (first, next) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..SERVICE_THREADS {
            scope.spawn(|| {
                loop {
                    let due = EVERY * u32::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    std::thread::sleep(due.saturating_sub(first.elapsed()));
                    work(rounds);
                    let latency = first.elapsed() - due;
                    let line = format!("{} {}\n", due.as_micros(), latency.as_micros());
                    std::io::Write::write_all(&mut *file.lock().unwrap(), line.as_bytes()).unwrap();
                }
            });
        }
        end_with_the_bench();
    });
}

fn spin() {
    println!("{READY}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    (0..cpus).for_each(|_| {
        drop(std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        }));
    });
    end_with_the_bench();
}

fn end_with_the_bench() {
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Rounds of [`work`] that take [`WORK`] of CPU time here, by the fastest of many tries.
fn calibrated() -> u64 {
    const TRY: u64 = 100_000;
    let fastest = (0..200).map(|_| {
        let start = Instant::now();
        work(TRY);
        start.elapsed()
    });
    TRY * WORK.as_nanos() as u64 / fastest.min().unwrap().as_nanos() as u64
}

fn work(rounds: u64) {
    let mut state = 1_u64;
    for _ in 0..rounds {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Bars of the p99 and of best effort's CPU time.
fn chart(means: &[Figures]) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 200\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"720\" height=\"200\" fill=\"white\"/>\n\
         <text x=\"180\" y=\"20\" font-weight=\"bold\">p99 of the service, ms</text>\n\
         <text x=\"470\" y=\"20\" font-weight=\"bold\">CPUs of best effort</text>\n",
    );
    let most = |value: fn(&Figures) -> f64| means.iter().map(value).fold(f64::EPSILON, f64::max);
    let (most_ms, most_cores) = (most(|one| one.p99_ms), most(|one| one.batch_cores));
    for (at, (case, figures)) in CASES.iter().zip(means).enumerate() {
        let y = 36 + 40 * at;
        let (ms, cores) = (figures.p99_ms, figures.batch_cores);
        let (wide, other) = (220.0 * ms / most_ms, 180.0 * cores / most_cores);
        let text = y + 17;
        writeln!(
            svg,
            "<text x=\"170\" y=\"{text}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"180\" y=\"{y}\" width=\"{wide:.0}\" height=\"24\" fill=\"#c2410c\"/>\n\
             <text x=\"{:.0}\" y=\"{text}\">{ms:.1}</text>\n\
             <rect x=\"470\" y=\"{y}\" width=\"{other:.0}\" height=\"24\" fill=\"#1d4ed8\"/>\n\
             <text x=\"{:.0}\" y=\"{text}\">{cores:.2}</text>",
            case.name(),
            186.0 + wide,
            476.0 + other,
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}
