//! Install tests: the chart as it is, by helm, in a cluster with systemd.
//!
//! They run in order, since each profile is an upgrade of the one before; the last ones uninstall.
//! Each prints its figures.

mod agent;
mod audit;
mod best_effort;
mod burst;
mod lifecycle;
mod monitor;
mod node_condition;
mod nri;
mod pin;
mod placement;
mod plugin;
mod pods;
mod trace;

use std::process::ExitCode;
use std::time::Instant;

pub(super) use pods::{ensure_pods, static_pods};

use super::ClusterError;
use super::session::Cluster;
use crate::process;

/// A test: returns its figures.
type Test = fn(&Cluster) -> Result<String, ClusterError>;

const TESTS: [(&str, Test); 16] = [
    ("pods", pods::create),
    ("monitor-ready", monitor::becomes_ready),
    ("names", monitor::every_container_has_its_name),
    ("audit", audit::agent_asks_nothing_of_the_api_server),
    ("plugin", plugin::commands_need_only_the_documented_rights),
    ("trace", trace::attaches_or_says_why),
    ("node-condition", node_condition::follows_the_waits_of_pods),
    ("nri", nri::variables_come_and_no_container_waits),
    ("burst", burst::limit_shrinks_below_a_burst_with_nri),
    ("burst-without-nri", burst::limit_shrinks_below_a_burst_without_nri),
    ("placement", placement::containers_are_created_on_their_cpus),
    ("pin-observe", pin::observing_plans_and_writes_nothing),
    ("pin-enforce", pin::pins_survive_systemd_and_kubelet),
    ("upgrade", lifecycle::upgrade_and_rollback_keep_pins),
    ("uninstall", lifecycle::uninstall_leaves_nothing),
    ("best-effort", best_effort::steps_survive_the_kubelet),
];

/// Runs the tests, or those named. Prints a line per test; fails if one failed.
pub(super) fn run(cluster: &Cluster, only: &[String]) -> Result<ExitCode, ClusterError> {
    if let Some(unknown) = only.iter().find(|name| TESTS.iter().all(|(test, _)| test != name)) {
        let known: Vec<_> = TESTS.iter().map(|(name, _)| *name).collect();
        return Err(ClusterError::Unexpected(format!(
            "{unknown}: no such test; there are {}",
            known.join(", ")
        )));
    }
    let mut failed = 0;
    for (name, test) in
        TESTS.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name))
    {
        let start = Instant::now();
        let (word, text) = match test(cluster) {
            Ok(figures) => ("ok", figures),
            Err(error) => {
                failed += 1;
                ("FAILED", format!("{}{}", process::error_chain(&error), agent::state(cluster)))
            }
        };
        println!(
            "cluster {} {name}: {word} ({:.0} s) {text}",
            cluster.release,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fails with a text unless a condition holds.
fn ensure(condition: bool, text: impl FnOnce() -> String) -> Result<(), ClusterError> {
    if condition { Ok(()) } else { Err(ClusterError::Unexpected(text())) }
}
