//! The terminal view at 80 × 24: long names leave the facts readable, and each view has its
//! content.

use serde_json::Value;

use super::Tmux;
use crate::support::{
    Agent, Kubelet, Qos, RealTree, Workload, binary, eventually, pod_list, running_pod,
};

const NODE: &str = "ip-192-168-100-123.eu-central-1.compute.internal";
const NAMESPACE: &str = "payments-production";
const POD: &str = "checkout-worker-canary-7d9f8b6c5d-x2x4v";

#[test]
fn long_names_leave_the_facts_readable() {
    let tree = RealTree::beside_others();
    let (uid, id) = ("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0021", "e".repeat(64));
    let container = tree.pod(Qos::Burstable, uid).child(&id);
    container.set_quota_usec(20_000, 100_000);
    let _running = container.spawn(&Workload::Spin { threads: 1 });
    let kubelet = Kubelet::start(pod_list(&[running_pod(uid, NAMESPACE, POD, &id)]));
    let mut flags = kubelet.flags();
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    flags.extend([kubepods, format!("--node-name={NODE}"), "--sched-trace=off".to_owned()]);
    let agent = Agent::start_in(&tree.above().child("agent"), &flags);
    let frame = || serde_json::from_str::<Value>(&agent.get("/api/v1/frame").1).unwrap_or_default();
    eventually("the pod's name", || frame()["containers"][0]["pod"] == POD);

    let tmux = Tmux::start(80, 24);
    let command = format!("{} top --address {}", binary().display(), agent.address());
    tmux.keys(&[&command, "Enter"]);
    let screen = tmux.wait_for_first_row(">L …");
    assert!(screen.contains("checkout-worker-canary-…x2x4v  "), "{screen}");
    let lines: Vec<&str> = screen.lines().collect();
    let is_whole = |line: &str| line.contains("ip-192-168-100-123") && line.contains(" UTC");
    assert!(is_whole(lines[0]), "{screen}");
    let sentence = lines.iter().find(|line| line.contains(": throttled ")).unwrap();
    assert!(sentence.starts_with("payments") && sentence.contains('…'), "{screen}");
    assert!(sentence.ends_with(" of the time by its own limit of 0.2 cores"), "{screen}");
    // Known from the second frame on, where the kernel has it. Steal may follow it.
    eventually("the pressure, if the frame has one", || {
        let has_pressure = frame()["node"]["pressure"].is_number();
        let screen = tmux.screen();
        let mut facts = screen.lines().next().unwrap_or_default().split("  ");
        let shown = facts.find_map(|fact| fact.strip_prefix("pressure "));
        shown.is_some_and(|share| share.ends_with('%')) == has_pressure
    });
    tmux.keys(&["Enter"]);
    let screen = tmux.wait_for("used, limit 0.20");
    assert!(screen.contains(&format!("{NAMESPACE}/{POD}/main")), "{screen}");
    tmux.keys(&["q"]);
    tmux.assert_restored();
}

/// Opens each view of the demo at 80 × 24 and returns to that of the pods.
pub(super) fn assert_every_view_has_its_content(tmux: &Tmux) {
    tmux.keys(&["a"]);
    let screen = tmux.wait_until("the victims", |screen| {
        screen.contains("MAKES WAIT") && screen.contains("search/index")
    });
    assert!(screen.contains("WORST VICTIM"), "{screen}");
    tmux.assert_is_whole();
    tmux.keys(&["t"]);
    let screen = tmux.wait_for("no pod has CPUs of its own");
    assert!(screen.contains("[  0") && screen.contains("%."), "{screen}");
    tmux.assert_is_whole();
    tmux.keys(&["?"]);
    tmux.wait_for("reverse the view");
    tmux.keys(&["End"]);
    tmux.wait_for("the configuration does not provide the value");
    tmux.assert_is_whole();
    tmux.keys(&["Escape"]);
    tmux.wait_for("no pod has CPUs of its own");
    tmux.keys(&["Escape"]);
    tmux.wait_for("MAKES WAIT");
    tmux.keys(&["a"]);
    tmux.wait_until("the pods that wait", |screen| !screen.contains("MAKES WAIT"));
}
