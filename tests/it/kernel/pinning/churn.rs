//! Pods that start and end while cpusets are written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel_text::CpuSet;
use pinning::{PinningStatus, Trace};
use placement::Step;

use super::scene::{Scene, all_classes, container_id};
use crate::support::{Cgroup, Qos};

/// Starts and ends pods as a kubelet and a runtime do, until `stop` is set; returns their number.
fn start_and_end_pods(scene: &Scene, stop: &AtomicBool) -> usize {
    let mut started = 0;
    while !stop.load(Ordering::Relaxed) {
        let pod = scene.tree.pod(
            Qos::Burstable,
            &format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0e{:04}", started % 10_000),
        );
        let containers: Vec<Cgroup> = (0..3).map(|at| pod.child(&container_id(at))).collect();
        std::thread::sleep(Duration::from_millis(5));
        containers.iter().for_each(Cgroup::remove);
        pod.remove();
        started += 1;
    }
    started
}

#[test]
fn pods_that_start_and_end_all_the_time_are_no_rival() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| start_and_end_pods(&scene, &stop));
        let mut pass = || pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
        let statuses: Vec<_> = (0..80).map(|_| pass().status).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(starting.join().unwrap() > 0);
        assert!(
            statuses.iter().all(|status| *status == PinningStatus::Enforcing),
            "{}",
            statuses[79]
        );
    });
    scene.pass(&mut pinner);
    assert_eq!(scene.pass(&mut pinner).operations.iter().count(), 0);
}

#[test]
fn a_pod_that_ends_between_two_steps_delays_no_grant() {
    let scene = Scene::new(&all_classes());
    let short = scene.tree.pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff");
    let container = short.child(&container_id(9));
    let mut pinner = scene.pinner(true);
    let mut written = 0;
    let report = pinner.pass(&scene.index(), &CpuSet::new(), &mut |trace| {
        if matches!(trace, Trace::Done(Step::Write { path, .. }) if path.starts_with(short.dir("cpuset"))) {
            written += 1;
            container.remove();
            short.remove();
        }
    });
    assert!(written > 0);
    assert_eq!(
        (report.status, report.pins.len()),
        (PinningStatus::Enforcing, scene.pods.len() - 2)
    );
    assert!(report.operations.iter().all(|(_, held, _)| held), "{:?}", report.operations);
}
