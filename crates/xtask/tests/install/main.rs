//! Install tests: the chart as it is, by helm, in a cluster with systemd.
//!
//! They run in order, since each profile is an upgrade of the one before; the last ones uninstall.
//! Each prints its figures. This program also makes the certificates of a cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod agent;
mod audit;
mod best_effort;
mod burst;
mod certificates;
mod cri_stats;
mod first_answer;
mod lifecycle;
mod monitor;
mod node_condition;
mod node_start;
mod nri;
mod pin;
mod placement;
mod plugin;
mod starved;
mod trace;

use std::time::Instant;

use xtask::cluster::{Cluster, ClusterError, ONLY, pods};
use xtask::process;

/// A test: returns its figures.
type Test = fn(&Cluster) -> Result<String, ClusterError>;

const TESTS: [(&str, Test); 23] = [
    ("pods", pods::create),
    ("first-answer", first_answer::the_page_names_the_culprit),
    ("monitor-ready", monitor::becomes_ready),
    ("names", monitor::every_container_has_its_name),
    ("audit", audit::agent_asks_nothing_of_the_api_server),
    ("plugin", plugin::commands_need_only_the_documented_rights),
    ("cri-stats", cri_stats::the_agent_has_what_the_runtime_lacks),
    ("trace", trace::attaches_or_says_why),
    ("node-condition", node_condition::follows_the_waits_of_pods),
    ("nri", nri::variables_come_and_no_container_waits),
    ("nri-starved", starved::placement_is_repaired),
    ("burst", burst::limit_shrinks_below_a_burst_with_nri),
    ("burst-without-nri", burst::limit_shrinks_below_a_burst_without_nri),
    ("burst-killed", burst::limit_shrinks_below_a_burst_of_a_killed_agent),
    ("placement", placement::containers_are_created_on_their_cpus),
    ("pin-observe", pin::observing_plans_and_writes_nothing),
    ("pin-enforce", pin::pins_survive_systemd_and_kubelet),
    ("upgrade", lifecycle::upgrade_and_rollback_keep_pins),
    ("uninstall", lifecycle::uninstall_leaves_nothing),
    ("best-effort", best_effort::steps_survive_the_kubelet),
    ("drain-vanished", lifecycle::drain_succeeds_after_all_pods_vanished),
    ("node-start", node_start::pods_start_with_the_agent),
    // Last: containers keep the CPUs that the static policy has set, which prevents pinning.
    ("burst-static", burst::limit_shrinks_next_to_static_cpus),
];

/// Runs the tests in the cluster of `cargo xtask cluster test`, or those named. Prints a line per
/// test.
#[test]
#[ignore = "needs a cluster: cargo xtask cluster test"]
fn install() {
    let cluster = Cluster::beside().unwrap();
    let only = std::env::var(ONLY).unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let known = TESTS.map(|(name, _)| name);
    for name in &only {
        assert!(known.contains(name), "{name}: no such test; there are {}", known.join(", "));
    }
    // libtest has begun a line.
    println!();
    let wanted = TESTS.iter().filter(|(name, _)| only.is_empty() || only.contains(name));
    let failed = wanted.filter(|(name, test)| !passes(&cluster, name, *test)).count();
    assert_eq!(failed, 0, "failed tests");
}

/// Runs a test, and prints its line.
fn passes(cluster: &Cluster, name: &str, test: Test) -> bool {
    let start = Instant::now();
    let result = test(cluster);
    let (word, text) = match &result {
        Ok(figures) => ("ok", figures.clone()),
        Err(error) => {
            ("FAILED", format!("{}{}", process::error_chain(error), agent::state(cluster)))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    println!("cluster {} {name}: {word} ({seconds:.0} s) {text}", cluster.release());
    result.is_ok()
}
