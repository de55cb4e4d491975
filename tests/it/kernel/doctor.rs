//! `cpuwarden doctor` on this kernel.

use std::process::Command;

use serde_json::Value;

use crate::support::{Qos, RealTree, Workload, binary};

#[test]
fn the_doctor_reports_containers_and_kernel_features() {
    let tree = RealTree::new();
    let container = tree
        .pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001")
        .child(&"4a7d1ed4".repeat(8));
    let _spinner = container.spawn(&Workload::Spin { threads: 1 });
    let kubepods = tree.kubepods().path().to_str().unwrap();
    let options = ["doctor", "--json", "--pod-source=none", "--kubepods", kubepods];
    let more = ["--sched-trace=auto", "--best-effort=enforce", "--burst=observe"];
    let options = options.into_iter().chain(more);
    let output = Command::new(binary()).args(options).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let level = |check: &str| {
        let found =
            report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == check);
        found.map(|finding| finding["level"].as_str().unwrap().to_owned())
    };
    for check in ["kernel", "cgroups", "reading", "processes", "waits", "descriptors", "inotify"]
        .into_iter()
        .chain(["best-effort", "burst"])
    {
        assert_eq!(level(check).as_deref(), Some("good"), "{check}: {report:#}");
    }
    // Their controllers are available, so there is no finding about them.
    assert_eq!((level("cpuset"), level("memory")), (None, None), "{report:#}");
    assert!(
        report["findings"][1]["found"].as_str().unwrap().contains("driver cgroupfs"),
        "{report:#}"
    );
    assert_ne!(output.status.code(), Some(2), "{report:#}");
}
