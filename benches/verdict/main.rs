//! The verdict, proven by removal: real loads in real cgroups, and the real agent with its trace.
//! Needs root, writable cgroups, BTF and two CPUs; takes 10 minutes per repeat.
//!
//! Each scenario of `scenarios.rs` has a service whose latencies are measured, suspects, and a
//! control. It runs alone (suspects frozen, limits lifted), with all, and with each suspect frozen,
//! each limit lifted, or the control frozen in turn. The service is slowed if its mean latency
//! grows by half, and its cause is what restores at least half of the excess when it is removed.
//! The agent is asked at the end of the phase with all.
//!
//! The service creates its own requests, at fixed times, and so is outside of what is frozen: by
//! the freezer of cgroup v1, or `cgroup.freeze` of v2. All pods of a scenario have one CPU, unless
//! it says otherwise; the agent has the other one.
//!
//! Printed: each run, and a table by scenario. A run is disturbed if others used 10 % of the measured
//! CPU, 2 % were stolen, or the control cures: it ends at once, is listed and not counted, and is
//! tried again in the next round; the two CPUs change places.
//!
//! `cargo bench --bench verdict -- [--repeats 5] [--minutes 60] [--only PART_OF_NAME] [--cpu N]
//! [--fill]`. With `--fill` a thread of the idle class takes what the pods leave of the measured
//! CPU, for a machine with other load: what others use is then time that they took from the bench.
//!
//! `--record DIR` measures nothing: it saves the scheduler events of each scenario without a limit for
//! `cargo bench -p analysis --bench blame`.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

mod freezer;
mod load;
mod machine;
mod model;
mod recorder;
mod run;
mod scenarios;
mod staged;
#[path = "../../tests/it/support/mod.rs"]
mod support;
mod table;
mod truth;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use run::{Ended, Node};
use staged::TwoCpus;

/// Runs of one scenario.
#[derive(Debug, Default)]
struct Runs {
    counted: Vec<run::Outcome>,
    disturbed: usize,
}

struct Arguments {
    repeats: usize,
    only: Vec<String>,
    cpu: usize,
    minutes: u64,
    fill: bool,
    record: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Self {
        let (only, fill, record) = (Vec::new(), false, None);
        let mut read = Self { repeats: 5, only, cpu: 1, minutes: 60, fill, record };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match &*word {
                "--repeats" => read.repeats = value().parse().unwrap(),
                "--only" => read.only.push(value()),
                "--cpu" => read.cpu = value().parse().unwrap(),
                "--minutes" => read.minutes = value().parse().unwrap(),
                "--fill" => read.fill = true,
                "--record" => read.record = Some(value().into()),
                // Added by cargo.
                "--bench" => {}
                other => panic!("unknown argument {other}"),
            }
        }
        read
    }
}

fn main() {
    load::run_role();
    let arguments = Arguments::read();
    let stop = stop_at_signals();
    let mut scenarios = scenarios::all();
    if !arguments.only.is_empty() {
        scenarios.retain(|one| arguments.only.iter().any(|part| one.name.contains(&**part)));
    }
    let cpus = TwoCpus { measured: arguments.cpu, other: usize::from(arguments.cpu == 0) };
    let mut node = Node::start(cpus, arguments.fill);
    if let Some(to) = &arguments.record {
        record(&node, &scenarios, to, &stop);
        return;
    }
    let mut runs: Vec<Runs> = scenarios.iter().map(|_| Runs::default()).collect();
    let end = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let is_open = |runs: &Runs| runs.counted.len() < arguments.repeats;
    let mut number = 0;
    'all: while Instant::now() < end && runs.iter().any(is_open) {
        for (scenario, runs) in scenarios.iter().zip(&mut runs).filter(|(_, runs)| is_open(runs)) {
            number += 1;
            match node.run(scenario, number, &stop) {
                _ if Instant::now() >= end => break 'all,
                Err(Ended::Interrupted) => break 'all,
                Err(Ended::Disturbed(by)) => {
                    println!("{}: disturbed: {by}", scenario.name);
                    runs.disturbed += 1;
                    node.swap_cpus();
                }
                Ok(outcome) => {
                    println!("{}", table::run(scenario, &outcome));
                    runs.counted.push(outcome);
                }
            }
        }
    }
    drop(node);
    print!("{}", table::all(&scenarios, &runs));
}

/// Records each scenario.
fn record(node: &Node, scenarios: &[model::Scenario], to: &Path, stop: &AtomicBool) {
    for (number, scenario) in scenarios.iter().enumerate() {
        if let Err(ended) = node.record(scenario, number, to, stop) {
            println!("{}: {ended:?}", scenario.name);
        }
    }
}

/// Set by Ctrl-C and SIGTERM: the cgroups are removed all the same.
fn stop_at_signals() -> Arc<AtomicBool> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let [mut interrupt, mut terminate] = {
        let _inside = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).unwrap())
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        set.store(true, Ordering::Relaxed);
    });
    stop
}
