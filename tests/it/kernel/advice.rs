//! Advice from the real agent about a real cgroup.

use serde_json::Value;

use crate::support::{Agent, Qos, RealTree, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0008";
const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

fn advice(agent: &Agent) -> Option<Value> {
    let (status, body) = agent.get("/api/v1/advice");
    assert_eq!(status, 200, "{body}");
    let report: Value = serde_json::from_str(&body).unwrap();
    report["containers"].as_array().unwrap().iter().find(|row| row["container"] == ID).cloned()
}

#[test]
fn a_throttled_container_gets_a_finding_with_figures() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    container.set_quota_usec(20_000, 100_000);
    let agent = Agent::on(&tree, &["--sample-interval", "1s"]);
    let _spinner = container.spawn(&Workload::Spin { threads: 1 });
    let finding = |row: &Value| {
        let mut findings = row["findings"].as_array().unwrap().iter();
        findings.find(|finding| finding["kind"] == "throttled-by-own-quota").cloned()
    };
    eventually("the finding", || advice(&agent).is_some_and(|row| finding(&row).is_some()));
    let found = finding(&advice(&agent).unwrap()).unwrap();
    let figures = &found["evidence"];
    assert!(
        figures["limitCores"] == 0.2 && figures["throttledShare"].as_f64().unwrap() > 0.5,
        "{found}"
    );
}
