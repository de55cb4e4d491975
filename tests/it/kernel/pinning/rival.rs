//! Another writer of the same cpusets.

use std::time::Duration;

use kernel_text::CpuSet;
use pinning::{Operation, PassReport, PauseCause, Pinner, PinningStatus, PodOutcome, Trace};
use placement::{Class, Step};

use super::scene::{PodRequest, Scene, all_classes, online};
use crate::support::Workload;

/// Writes as the kubelet does when its shared pool changes, and systemd at a daemon-reload.
pub(super) fn rewrite(scene: &Scene) {
    for cgroup in [scene.pods[0].1.clone(), scene.container(0)] {
        cgroup.write("cpuset", "cpuset.cpus", &online().to_string());
    }
}

/// A pass without the scene's check: the other writer breaks the invariant, and the pass restores
/// it.
fn pass_after_a_rival(scene: &Scene, pinner: &mut Pinner) -> PassReport {
    pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {})
}

#[test]
fn a_rewrite_is_repaired_and_counted() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let confined = scene.effective(0);
    rewrite(&scene);
    assert_ne!(scene.effective(0), confined);
    let report = pass_after_a_rival(&scene, &mut pinner);
    assert_eq!(report.operations.count(Operation::Repair), 2);
    assert_eq!(
        report.decisions.iter().map(|decision| &decision.outcome).collect::<Vec<_>>(),
        [&PodOutcome::Repaired(2)]
    );
    assert_eq!((scene.effective(0), report.status), (confined, PinningStatus::Enforcing));
    assert_eq!(scene.pass(&mut pinner).operations.iter().count(), 0);
}

/// systemd's daemon-reload and a restarting kubelet rewrite all pods, one after the other.
#[test]
fn a_rewrite_of_every_pod_in_turn_is_no_rival() {
    let requests = [
        vec![PodRequest { class: Class::Share, cpus: 0 }; 8],
        vec![PodRequest { class: Class::Lse, cpus: 1 }],
    ]
    .concat();
    let scene = Scene::new(&requests);
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    for at in 0..8 {
        scene.pods[at].1.write("cpuset", "cpuset.cpus", &online().to_string());
        let report = pass_after_a_rival(&scene, &mut pinner);
        assert!(report.operations.count(Operation::Repair) > 0);
        assert_eq!(report.status, PinningStatus::Enforcing);
    }
}

#[test]
fn a_pod_rewritten_by_another_writer_is_left_alone() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    for _ in 0..5 {
        rewrite(&scene);
        assert_eq!(pass_after_a_rival(&scene, &mut pinner).status, PinningStatus::Enforcing);
    }
    rewrite(&scene);
    let report = pass_after_a_rival(&scene, &mut pinner);
    assert_eq!(
        (report.status, report.stepped_back),
        (PinningStatus::Enforcing, [(("pod", "rewritten"), 1)].into())
    );
    assert!(report.decisions.iter().any(|decision| decision.outcome
        == PodOutcome::SteppedBack { cause: PauseCause::Rewritten, minutes: 1 }));
    let left = scene.bytes();
    rewrite(&scene);
    let _running = scene.container(0).spawn(&Workload::Spin { threads: 1 });
    let report = pass_after_a_rival(&scene, &mut pinner);
    assert_eq!(report.operations.iter().count(), 0);
    assert!(
        report.overlaps.values().any(|time| *time > Duration::ZERO),
        "overlaps are still reported: {report:?}"
    );
    assert_eq!(scene.bytes(), left, "what the rival wrote stays");
}

#[test]
fn stepped_back_from_the_node_what_is_released_is_given_back() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let rewrite_most = || {
        for at in (0..scene.pods.len()).filter(|at| *at != 1) {
            for cgroup in [scene.pods[at].1.clone(), scene.container(at)] {
                cgroup.write("cpuset", "cpuset.cpus", &online().to_string());
            }
        }
    };
    let mut report = PassReport::idle(String::new());
    for _ in 0..6 {
        rewrite_most();
        report = pass_after_a_rival(&scene, &mut pinner);
    }
    assert!(
        matches!(&report.status, PinningStatus::Observing(why) if why.contains("changing the cpusets") && why.contains("1 min")),
        "{}",
        report.status
    );
    assert_eq!(report.stepped_back, [(("node", "rewritten"), 1)].into());
    assert_ne!(scene.effective(1), online());
    assert_eq!(
        pass_after_a_rival(&scene, &mut pinner).operations.iter().count(),
        0,
        "nobody is gone yet"
    );
    scene.container(2).remove();
    scene.pods[2].1.remove();
    pass_after_a_rival(&scene, &mut pinner);
    assert_eq!(scene.effective(1), online(), "nobody has CPUs that best effort may not use");
}

#[test]
fn a_rewrite_between_a_write_and_the_grant_holds_the_grant_back() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    // The sharer's pod: written last on v1, and as the only cgroup on v2.
    let (sharer, mut rewrites, mut grants) = (scene.pods[0].1.dir("cpuset"), 0, 0);
    let report = pinner.pass(&scene.index(), &CpuSet::new(), &mut |trace| match trace {
        Trace::Done(Step::Write { path, .. }) if sharer == *path && rewrites == 0 => {
            rewrite(&scene);
            rewrites += 1;
        }
        Trace::Done(Step::Grant { .. }) => grants += 1,
        _ => {}
    });
    assert_eq!((rewrites, grants), (1, 0), "{report:?}");
    assert!(report.operations.iter().any(|(_, held, _)| !held), "the pass saw it");
    assert!(report.pins.is_empty(), "{report:?}");
    assert_eq!(
        scene.pass(&mut pinner).operations.count(Operation::Grant),
        scene.pods.len() as u64 - 2
    );
}
