//! The condition of the Node object, from real waits to the request. It is about the last minute,
//! so that the test lasts longer than one.

use std::time::Duration;

use super::pinning::events::Cluster;
use crate::support::{Agent, Qos, RealTree, Workload, poll};

const UIDS: [&str; 2] =
    ["8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0301", "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0302"];
const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650301";
/// The random delay and the minute, two rounds of ten seconds, and a busy machine.
const TIMEOUT: Duration = Duration::from_secs(240);

#[test]
fn the_node_has_the_condition_while_its_pods_wait_for_each_other() {
    let (tree, cluster) = (RealTree::new(), Cluster::start());
    let pods = UIDS.map(|uid| tree.pod(Qos::Burstable, uid).child(ID));
    let waits = ["--sched-trace=on", "--sched-trace-budget=1", "--node-condition"];
    let flags = cluster.flags();
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(waits).collect();
    let agent = Agent::on(&tree, &flags);
    let spinners = pods.each_ref().map(|pod| {
        pod.write("cpuset", "cpuset.cpus", "0");
        pod.spawn(&Workload::Spin { threads: 1 })
    });
    let status = || {
        let patches = cluster.server.node_patches();
        let last = patches.last()?;
        Some(last["status"]["conditions"][0]["status"].as_str()?.to_owned())
    };
    let patches = || format!("the condition, after {:?}", cluster.server.node_patches());
    let is_set = || status().as_deref() == Some("True");
    poll(Duration::from_millis(100), TIMEOUT, patches, is_set);
    drop(spinners);
    let requests = cluster.server.requests();
    let others: Vec<_> =
        requests.iter().filter(|path| !path.starts_with("/api/v1/nodes/node-1/status")).collect();
    assert!(others.is_empty(), "{others:?}");
    let name = "cpuwarden_node_condition_patches_total";
    let patches = agent.metrics().value(name, &[("result", "ok")]);
    assert_eq!(patches, Some(requests.len() as f64));
}
