//! Reverted writes after a problem: a lost checkpoint, an obstacle, a container that started late.

use std::fs;
use std::time::Duration;

use kernel_text::CpuSet;
use pinning::{DrainOutcome, PinningStatus};
use placement::Class;
use state_dir::DrainRequest;

use super::scene::{PodRequest, Scene, all_classes, container_id, effective, online};

fn drain(scene: &Scene) -> DrainOutcome {
    let outcome = pinning::drain(&scene.drain_config(), Duration::ZERO).unwrap();
    assert!(
        !matches!(&outcome, DrainOutcome::Here(drained) if !drained.errors.is_empty()),
        "{outcome:?}"
    );
    outcome
}

#[test]
fn cpusets_that_the_kubelet_narrowed_are_not_widened() {
    let scene = Scene::new(&all_classes());
    let cpus = online().first().unwrap().to_string();
    scene.container(1).write("cpuset", "cpuset.cpus", &cpus);
    fs::write(
        scene.config(true).node.cpu_manager_state,
        r#"{"policyName":"static","entries":{"u":{"c":"0"}}}"#,
    )
    .unwrap();
    let before = scene.bytes();
    scene.pass(&mut scene.pinner(true));
    assert_eq!((drain(&scene), scene.bytes()), (DrainOutcome::Nothing, before));
}

#[test]
fn a_drain_restores_pods_confined_before_a_lost_checkpoint() {
    for lose in [|path| fs::write(path, "torn"), |path| fs::remove_file(path)] {
        let scene = Scene::new(&all_classes());
        let before = scene.all_effective();
        scene.pass(&mut scene.pinner(true));
        lose(scene.config(true).node.state_dir.join("pins.json")).unwrap();
        scene.pass(&mut scene.pinner(true));
        assert_ne!(scene.all_effective(), before);
        drain(&scene);
        assert_eq!(scene.all_effective(), before);
    }
}

#[test]
fn a_paused_agent_still_drains() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    fs::remove_file(scene.config(true).node.cpu_manager_state).unwrap();
    let report = scene.pass(&mut pinner);
    assert!(
        matches!(report.status, PinningStatus::Observing(reason) if reason.contains("policy is unknown"))
    );
    DrainRequest::of(&scene.config(true).node.state_dir).make().unwrap();
    let report = pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert!(
        matches!(report.status, PinningStatus::Observing(reason) if reason.contains("drained"))
    );
    assert_eq!(scene.all_effective(), before);
    // The agent no longer holds the lock.
    drain(&scene);
}

/// A v1 runtime starts a container with the current CPUs of its pod.
#[test]
fn a_container_that_came_into_a_confined_pod_gets_all_cpus_back() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ]);
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let late = scene.pods[0].1.child(&container_id(7));
    assert_ne!(effective(&late), online());
    scene.pass(&mut pinner);
    scene.container(1).remove();
    scene.pods[1].1.remove();
    pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert_eq!(effective(&late), online());
    drop(pinner);
    drain(&scene);
    assert_eq!(effective(&late), online());
}
