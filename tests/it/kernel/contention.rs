//! The Event about a pod that makes another wait, from real waits to the request. The harm must
//! last for a minute, and so does the test.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::pinning::agent::kubelet;
use super::pinning::events::Cluster;
use crate::support::{Agent, Qos, RealTree, Workload, running_pod};

/// Name, UID and container of each pod.
const PODS: [[&str; 3]; 2] = [
    [
        "cart-0",
        "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0311",
        "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650311",
    ],
    [
        "index-0",
        "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0312",
        "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650312",
    ],
];
/// The minute, rounds of ten seconds, and a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn a_pod_that_waits_for_another_pod_has_an_event_that_names_it() {
    let (tree, cluster) = (RealTree::new(), Cluster::start());
    let pods = PODS.map(|[name, uid, id]| running_pod(uid, "test", name, id));
    let list = json!({"kind": "PodList", "apiVersion": "v1", "items": pods});
    let own = [
        format!("--kubepods={}", tree.kubepods().path().display()),
        "--pod-source=readonly".to_owned(),
        format!("--kubelet-readonly-url=http://{}", kubelet(&list)),
        "--sched-trace=on".to_owned(),
        "--sched-trace-budget=1".to_owned(),
        "--events".to_owned(),
    ];
    let _spinners = PODS.map(|[_, uid, id]| {
        let container = tree.pod(Qos::Burstable, uid).child(id);
        container.write("cpuset", "cpuset.cpus", "0");
        container.spawn(&Workload::Spin { threads: 1 })
    });
    let agent = Agent::start(&[cluster.flags(), own.to_vec()].concat());
    let start = Instant::now();
    // Each waits for the other.
    while cluster.server.events().len() < PODS.len() {
        assert!(start.elapsed() < TIMEOUT, "{:?}\n{}", cluster.server.events(), agent.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let events = cluster.server.events();
    for ([victim, uid, _], [aggressor, ..]) in [(PODS[0], PODS[1]), (PODS[1], PODS[0])] {
        let of_victim = |event: &&Value| event["regarding"]["uid"] == uid;
        let event = events.iter().find(of_victim).unwrap_or_else(|| panic!("{events:?}"));
        assert_eq!(
            (&event["type"], &event["reason"]),
            (&"Warning".into(), &"CpuContention".into())
        );
        assert_eq!(event["regarding"]["name"], victim);
        assert_eq!(event["related"]["name"], aggressor);
        let note = event["note"].as_str().unwrap();
        assert!(note.contains(&format!("of its time for test/{aggressor}, which uses")), "{note}");
    }
}
