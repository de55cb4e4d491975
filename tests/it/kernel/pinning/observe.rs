//! Files that must not be written.

use std::fs;

use inotify::{Inotify, WatchMask};
use pinning::PinningStatus;

use super::scene::{Scene, all_classes, online};

/// Watches the pods' `cpuset.cpus` for writes, from now on.
fn watch(scene: &Scene) -> Inotify {
    let inotify = Inotify::init().unwrap();
    for (_, cgroup) in scene.cgroups() {
        let file = cgroup.dir("cpuset").join("cpuset.cpus");
        inotify.watches().add(file, WatchMask::CLOSE_WRITE | WatchMask::MODIFY).unwrap();
    }
    inotify
}

fn writes(inotify: &mut Inotify) -> usize {
    match inotify.read_events(&mut [0; 4096]) {
        Ok(events) => events.count(),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            0
        }
    }
}

#[test]
fn observing_plans_and_opens_nothing_for_writing() {
    let scene = Scene::new(&all_classes());
    let (before, mut watch) = (scene.bytes(), watch(&scene));
    let mut pinner = scene.pinner(false);
    for _ in 0..3 {
        let report = scene.pass(&mut pinner);
        assert_eq!(report.status, PinningStatus::Observing("--pinning=observe".to_owned()));
        assert_eq!(report.pins.len(), scene.pods.len() - 2, "it plans all the same");
        assert_eq!(report.operations.iter().count(), 0);
    }
    assert_eq!((writes(&mut watch), scene.bytes()), (0, before));
    assert!(!scene.config(false).node.state_dir.exists());
    // The watch does see what enforcing writes.
    scene.pass(&mut scene.pinner(true));
    assert!(writes(&mut watch) > 0);
}

#[test]
fn under_a_static_or_unknown_policy_nothing_is_written() {
    let scene = Scene::new(&all_classes());
    let (before, mut watch) = (scene.bytes(), watch(&scene));
    let state = scene.config(true).node.cpu_manager_state;
    fs::write(&state, r#"{"policyName":"static","entries":{"u":{"c":"1"}}}"#).unwrap();
    let report = scene.pass(&mut scene.pinner(true));
    assert!(report.pins.is_empty());
    assert!(
        matches!(&report.status, PinningStatus::Observing(reason) if reason.contains("static")),
        "{}",
        report.status
    );
    assert!(report.rejections().all(|reason| reason == placement::Reason::KubeletStatic));
    assert_eq!(report.pools.unwrap().kubelet.to_string(), "1");
    fs::remove_file(&state).unwrap();
    let report = scene.pass(&mut scene.pinner(true));
    assert!(
        matches!(report.status, PinningStatus::Observing(reason) if reason.contains("policy is unknown"))
    );
    assert_eq!((writes(&mut watch), scene.bytes()), (0, before));
}

/// As koordlet's suppression leaves it behind, or as an administrator configures it.
#[test]
fn a_narrowed_qos_level_does_not_narrow_other_levels() {
    let scene = Scene::new(&all_classes());
    let one = online().first().unwrap().to_string();
    scene.tree.kubepods().existing_child("besteffort").write("cpuset", "cpuset.cpus", &one);
    let before = scene.bytes();
    let mut pinner = scene.pinner(true);
    let status = scene.pass(&mut pinner).status;
    assert!(
        matches!(&status, PinningStatus::Observing(why) if why.contains("besteffort is restricted to CPUs")),
        "{status}"
    );
    assert_eq!(scene.bytes(), before);
    scene.tree.kubepods().existing_child("besteffort").write(
        "cpuset",
        "cpuset.cpus",
        &online().to_string(),
    );
    assert_eq!(scene.pass(&mut pinner).status, PinningStatus::Enforcing);
}
