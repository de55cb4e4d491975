//! A Go service below its CPU limit on this machine's CPUs, without and with the variables that the
//! agent injects. Needs root, writable cgroups, and Go 1.25 or newer (with a network for the
//! toolchain 1.24); takes 11 minutes.
//!
//! The service keeps 64 MiB and answers requests at fixed times, each with 8 ms of work and 1 MiB
//! of garbage; a request's latency counts from the time at which it was due. Scenes: half a core
//! and a request every 25 ms; one core and 16 requests at once every 200 ms. The cases run in turn,
//! twice: without variables, with the default ones of the crate `analysis`, and also with GOGC. CPU
//! time of collections is the estimate of Go's runtime.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use analysis::HEAP_SHARE;
use analysis::injection::{Known, Limits, Request};
use support::{Qos, READY, RealTree, Running};

const SERVICE: &str = include_str!("service.go");
/// Toolchain and language version. The language version decides whether Go follows the limit.
const VERSIONS: [(&str, &str); 2] = [("go1.24.9", "1.24"), ("local", "1.25")];

/// Limit of the CPU and times of the requests.
struct Scene {
    cpu_millis: u64,
    requests_at_once: u64,
    interval_ms: u64,
}

const SCENES: [Scene; 2] = [
    Scene { cpu_millis: 500, requests_at_once: 1, interval_ms: 25 },
    Scene { cpu_millis: 1000, requests_at_once: 16, interval_ms: 200 },
];
const MEMORY: u64 = 256 << 20;
const SETTLE: Duration = Duration::from_secs(5);
const SPAN: Duration = Duration::from_secs(20);
const ROUNDS: usize = 2;
const CASES: [&str; 3] = ["without", "injected", "injected, also GOGC"];

const POD: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0301";
const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650301";

/// p50, p90, p99 (ms), cycles, seconds of collections, GOMAXPROCS, periods, throttled periods,
/// CPU seconds.
type Figures = [f64; 9];

fn main() {
    let directory = tempfile::tempdir().unwrap();
    println!(
        "| CPU limit | Go | case | GOMAXPROCS | p50 | p90 | p99 | throttled periods | GC cycles | \
         GC CPU | CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (toolchain, language) in VERSIONS {
        let (program, version) = build(directory.path(), toolchain, language);
        for scene in &SCENES {
            let mut sums = [Figures::default(); CASES.len()];
            for _ in 0..ROUNDS {
                for (case, sum) in sums.iter_mut().enumerate() {
                    let variables = variables(case, language, scene);
                    let measured = measure(&program, scene, &variables, directory.path());
                    eprintln!("{version}, {}: {measured:?}", CASES[case]);
                    sum.iter_mut().zip(measured).for_each(|(sum, value)| *sum += value);
                }
            }
            for (name, sum) in CASES.iter().zip(sums) {
                let [p50, p90, p99, cycles, gc, procs, periods, throttled, cpu] =
                    sum.map(|value| value / ROUNDS as f64);
                let share = 100.0 * throttled / periods;
                let limit = scene.cpu_millis;
                println!(
                    "| {limit}m | {version} | {name} | {procs} | {p50:.1} ms | {p90:.1} ms | \
                     {p99:.1} ms | {share:.1} % | {cycles:.0} | {gc:.2} s | {cpu:.2} s |"
                );
            }
        }
    }
}

/// Variables of a case.
fn variables(case: usize, language: &str, scene: &Scene) -> Vec<(&'static str, String)> {
    let limits = Limits {
        cpu_millis: Some(scene.cpu_millis),
        pod_cpu_millis: Some(scene.cpu_millis),
        memory_bytes: Some(MEMORY),
        usable_cpus: None,
        scaled_request_millis: None,
    };
    let known = Known { go_follows_limit: language != "1.24", ..Known::default() };
    let requested = match case {
        0 => "false",
        1 => "true",
        _ => "GOMAXPROCS,GOMEMLIMIT,GOGC",
    };
    let Some(request) = Request::parse(requested, None).unwrap() else { return Vec::new() };
    let values = request.missing(|_| false, &limits, &known, HEAP_SHARE);
    values.into_iter().map(|(variable, value)| (variable.name(), value)).collect()
}

/// Builds the service; returns its path and the version of Go.
fn build(directory: &Path, toolchain: &str, language: &str) -> (PathBuf, String) {
    let directory = directory.join(toolchain);
    std::fs::create_dir(&directory).unwrap();
    let module = format!("module service\n\ngo {language}\n");
    std::fs::write(directory.join("go.mod"), module).unwrap();
    std::fs::write(directory.join("service.go"), SERVICE).unwrap();
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        let output = go
            .args(arguments)
            .current_dir(&directory)
            .env("GOTOOLCHAIN", toolchain)
            .output()
            .unwrap_or_else(|error| panic!("go: {error}; install Go 1.25 or newer"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    go(&["build", "-o", "service", "."]);
    (directory.join("service"), go(&["env", "GOVERSION"]))
}

fn measure(
    program: &Path,
    scene: &Scene,
    variables: &[(&str, String)],
    directory: &Path,
) -> Figures {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, POD).child(ID);
    container.set_memory_limit_bytes(MEMORY);
    container.set_quota_usec(scene.cpu_millis * 100, 100_000);
    let result = directory.join("result");
    let mut command = container.command(program);
    command.arg(&result);
    command.args([SETTLE, SPAN].map(|time| time.as_secs().to_string()));
    command.args([scene.requests_at_once, scene.interval_ms].map(|number| number.to_string()));
    for name in ["GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let running = Running::start(command, |line| line == READY).0;
    let counters = || {
        let stat = container.cpu_stat();
        [stat["nr_periods"] as f64, stat["nr_throttled"] as f64, container.usage_ns() as f64 / 1e9]
    };
    std::thread::sleep(SETTLE);
    let before = counters();
    std::thread::sleep(SPAN);
    let after = counters();
    support::eventually("the result", || result.exists());
    let text = std::fs::read_to_string(&result).unwrap();
    std::fs::remove_file(&result).unwrap();
    drop(running);
    let own = text.split_whitespace().map(|word| word.parse::<f64>().unwrap());
    let deltas = after.iter().zip(before).map(|(after, before)| after - before);
    own.chain(deltas).collect::<Vec<_>>().try_into().unwrap()
}
