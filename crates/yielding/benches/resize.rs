//! Time for which the container runtime waits before it writes a smaller quota: the burst of the
//! container and of its pod is lowered first. 1,000 containers with a burst; cgroups are plain
//! files. Cases:
//!
//! - no pass of the actor, or passes without a pause that write all bursts
//! - a container without burst (only the wait for the lock), or with one (and two writes)
//!
//! Target: p99 below 5 ms. `cargo bench -p yielding --bench resize`

#[path = "../tests/burst/node.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod node;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kernel_text::CgroupVersion;
use node::{Node, UID, id};
use yielding::{Actor, Resizes};

const CONTAINERS: usize = 1_000;
const RESIZES: usize = 4_000;
const PAUSE: Duration = Duration::from_millis(2);
/// A quota below every burst of the bench.
const SMALL_USEC: i64 = 1_000;

fn main() {
    let names: Vec<String> = (0..CONTAINERS).map(|at| format!("{at:04x}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ids: Vec<String> = names.iter().map(|name| id(name)).collect();
    let mut node = Node::of(CgroupVersion::V2, &names);
    let mut actor = node.actor();
    node.pass(&mut actor);
    let resizes = node.resizes.clone();
    let unknown = ["unknown".to_owned()];
    measure("no pass, no burst", &resizes, &unknown);
    let (stop, passes) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| run(&mut node, &mut actor, &stop, &passes));
        measure("passes, no burst", &resizes, &unknown);
        measure("passes, bursts", &resizes, &ids);
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} passes", passes.load(Ordering::Relaxed));
}

/// Passes, after each of which the kubelet has other limits.
fn run(node: &mut Node, actor: &mut Actor, stop: &AtomicBool, passes: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let pass = passes.fetch_add(1, Ordering::Relaxed);
        let limit = if pass.is_multiple_of(2) { 300 } else { 400 };
        for container in &mut node.pod.containers {
            container.resources.cpu_limit_millis = Some(limit);
        }
        let report = node.pass(actor);
        assert!(report.writes.errors.is_empty(), "{report:?}");
    }
}

fn measure(case: &str, resizes: &Resizes, ids: &[String]) {
    let mut times: Vec<Duration> = (0..RESIZES)
        .map(|at| {
            let id = &ids[at % ids.len()];
            thread::sleep(PAUSE);
            let start = Instant::now();
            resizes.container(UID, id, SMALL_USEC);
            let time = start.elapsed();
            // The next pass raises the burst again.
            resizes.container(UID, id, i64::MAX);
            time
        })
        .collect();
    times.sort();
    let at = |share: f64| times[(share * (RESIZES - 1) as f64) as usize];
    println!("{case}: p50 {:?}, p99 {:?}, max {:?} of {RESIZES}", at(0.5), at(0.99), at(1.0));
}
