//! Load on the sibling thread of a core with two threads: CPUs 0 and 1 of the QEMU node.

use crate::lab::{Lab, Measured, busy_ns};

/// Shares of the victim's run time beside its own pod, others, and nothing.
fn shares(victim: &Measured) -> [f64; 3] {
    let smt = victim.found.smt.expect("the node's cores have two threads");
    let run = victim.run_ns as f64;
    [smt.self_ns, smt.other_ns, smt.idle_ns].map(|ns| ns as f64 / run)
}

#[test]
#[ignore = "needs a core of two threads: the tests of the node run it"]
fn smt_siblings_are_distinguished() {
    let mut lab = Lab::new();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut victim = lab.container(&pods[0], "c");
    let mut sidecar = lab.container(&pods[0], "sidecar");
    let mut rival = lab.container(&pods[1], "c");
    victim.spin(0);
    sidecar.spin(1);
    rival.spin(1);
    // The victim has the other CPU's system work beside it too, and what it did before it could be
    // seen.
    let before_ns = busy_ns(1);
    let [measured] = lab.measure([&victim]);
    let others_ns = busy_ns(1) - before_ns;
    let alone = shares(&measured);
    let others = others_ns as f64 / measured.run_ns as f64;
    println!("alone: {alone:?}, the other CPU was busy for {others}");
    assert!(alone[2] >= 0.9 - others, "alone: {alone:?}, the other CPU was busy for {others}");
    let [measured, _] = lab.measure([&victim, &rival]);
    let with_rival = shares(&measured);
    assert!(with_rival[1] >= 0.9, "beside another pod: {with_rival:?}");
    let [measured, _] = lab.measure([&victim, &sidecar]);
    let with_sidecar = shares(&measured);
    assert!(with_sidecar[0] >= 0.9, "beside its own pod: {with_sidecar:?}");
}
