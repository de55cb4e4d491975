//! Starts of containers. Runs the release binary at its default interval beside
//! a kubelet stub. Needs root and writable cgroups.
//!
//! - `names` (the default): latency from the `mkdir` of a container's cgroup to its named series on
//!   `/metrics`, for 200 starts at irregular times; the stub lists a container once its cgroup
//!   exists. Printed: p50, p99 and maximum. On a real node a kubelet's own relist (about a second)
//!   adds to this.
//! - `rate`: the same for ten starts per second on a node of 500 pods ([`rate`]).
//! - `overlap`, with an optional number of starts: shared containers beside a full LSE pod, with
//!   and without placement at their creation ([`overlap`]).
//! - `all-at-once`: waits of new containers for the kubelet's list while a node starts
//!   ([`all_at_once`]).
//! - `answers`: time from a runtime's request to the agent's answer on a node of 250 pods
//!   ([`answers`]).

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

mod all_at_once;
mod answers;
mod node;
mod overlap;
mod rate;
#[path = "../../crates/nri/tests/plugin/runtime.rs"]
mod runtime;
#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use support::{Agent, Kubelet, Qos, RealTree, pod_list, running_pod};

const STARTS: usize = 200;
/// A container that has not appeared within this time counts as lost.
const LOST: Duration = Duration::from_secs(30);

fn main() {
    // Cargo adds the argument `--bench`.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        [] | ["names"] => names(),
        ["rate"] => rate::run(),
        ["overlap"] => overlap::run(STARTS),
        ["overlap", starts] => overlap::run(starts.parse().unwrap()),
        ["all-at-once"] => all_at_once::run(),
        ["answers"] => answers::run(),
        other => {
            panic!("unknown mode {other:?}: expected names, rate, overlap, all-at-once or answers")
        }
    }
}

fn names() {
    let kubelet = Kubelet::start(pod_list(&[]));
    let tree = RealTree::new();
    let mut flags = kubelet.flags();
    flags.push(format!("--kubepods={}", tree.kubepods().path().display()));
    let agent = Agent::start(&flags);
    let mut pods = Vec::new();
    let mut took: Vec<Duration> = (0..STARTS)
        .map(|number| {
            // Irregular, so that the starts are spread over every part of a second.
            std::thread::sleep(Duration::from_millis(137 + (number as u64 * 97) % 211));
            let uid = format!("{number:08x}-0000-4000-8000-000000000000");
            let (name, id) = (format!("start-{number}"), format!("{number:064x}"));
            let began = Instant::now();
            tree.pod(Qos::Burstable, &uid).child(&id);
            pods.push(running_pod(&uid, "bench", &name, &id));
            kubelet.list(&pods);
            let wanted = format!("cpuwarden_container_info{{namespace=\"bench\",pod=\"{name}\",");
            while !agent.get("/metrics").1.contains(&wanted) {
                assert!(began.elapsed() < LOST, "{name} never appeared");
                std::thread::sleep(Duration::from_millis(5));
            }
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    let (p50, p99, max) = (took[STARTS / 2], took[STARTS * 99 / 100 - 1], took[STARTS - 1]);
    println!(
        "{STARTS} starts, mkdir to a named series: p50 {p50:.0?}, p99 {p99:.0?}, longest {max:.0?}"
    );
}
