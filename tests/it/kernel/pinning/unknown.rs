//! Unknown cgroups below pods, and pods that cannot be confined: neither delays the other pods.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel_text::CpuSet;
use pinning::{Operation, PassReport, Pinner, PinnerConfig, PinningStatus, Trace};
use placement::{Class, Step};

use super::rival::rewrite;
use super::scene::{PodRequest, Scene, all_classes, effective, online};
use crate::support::Workload;

fn checkpoints(reports: &[PassReport]) -> u64 {
    reports.iter().map(|report| report.operations.count(Operation::Checkpoint)).sum()
}

/// Like Kata's `kata_<id>`, which has its sandbox's CPUs.
#[test]
fn an_unknown_cgroup_is_kept_within_its_pods_cpus() {
    let scene = Scene::new(&all_classes());
    let (shared, own) = (scene.pods[0].1.child("kata_1"), scene.pods[2].1.child("kata_2"));
    let mut pinner = scene.pinner(true);
    let report = scene.pass(&mut pinner);
    assert_eq!(
        (report.status, report.pins.len()),
        (PinningStatus::Enforcing, scene.pods.len() - 2)
    );
    assert_eq!((effective(&shared), effective(&own)), (scene.effective(0), scene.effective(2)));
    assert_eq!(scene.pass(&mut pinner).operations.iter().count(), 0);
}

#[test]
fn cgroup_churn_in_a_container_delays_nothing() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    let container = scene.container(0).dir("cpuset");
    let stop = AtomicBool::new(false);
    let begun = Barrier::new(2);
    let make_cgroups = || {
        for n in 0u64.. {
            let job = container.join(format!("job{}", n % 8));
            let _ = fs::create_dir(&job);
            // All current CPUs of its parent, which may have fewer by the time of the write.
            let _ = fs::write(
                job.join("cpuset.cpus"),
                fs::read_to_string(container.join("cpuset.cpus")).unwrap(),
            );
            std::thread::sleep(Duration::from_millis(1));
            let _ = fs::remove_dir(container.join(format!("job{}", (n + 3) % 8)));
            if n == 8 {
                begun.wait();
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let making = scope.spawn(make_cgroups);
        begun.wait();
        let reports: Vec<PassReport> =
            (0..40).map(|_| pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {})).collect();
        stop.store(true, Ordering::Relaxed);
        making.join().unwrap();
        let last = &reports[39];
        assert_eq!(
            (&last.status, last.pins.len()),
            (&PinningStatus::Enforcing, scene.pods.len() - 2),
            "{last:?}"
        );
        assert!(last.stepped_back.is_empty(), "{last:?}");
        assert!(checkpoints(&reports) <= 4, "{} in 40 passes", checkpoints(&reports));
    });
    (0..8).for_each(|n| drop(fs::remove_dir(container.join(format!("job{n}")))));
}

#[test]
fn a_pod_that_stays_on_its_cpus_delays_grants_briefly() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    let sharer = scene.pods[0].1.dir("cpuset");
    let mut pass = || {
        pinner.pass(&scene.index(), &CpuSet::new(), &mut |trace| {
            if matches!(trace, Trace::Done(Step::Write { path, .. }) if path.starts_with(&sharer)) {
                rewrite(&scene);
            }
        })
    };
    let reports: Vec<PassReport> = (0..8).map(|_| pass()).collect();
    assert!(reports[0].pins.is_empty(), "{:?}", reports[0]);
    let last = &reports[7];
    assert_eq!(
        (&last.status, last.pins.len()),
        (&PinningStatus::Enforcing, scene.pods.len() - 2),
        "{last:?}"
    );
    assert_eq!(
        last.stepped_back.iter().map(|((scope, _), pods)| (*scope, *pods)).collect::<Vec<_>>(),
        [("pod", 1)]
    );
    assert!(scene.effective(1).is_disjoint(&scene.effective(2)), "the others are confined");
    let later: Vec<PassReport> = (0..5).map(|_| pass()).collect();
    assert_eq!(
        (checkpoints(&later), later[4].operations.iter().count()),
        (0, 0),
        "it is left alone"
    );
}

#[test]
fn an_applications_cgroups_shrink_and_grow_with_their_container() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ]);
    let app = scene.container(0).child("app");
    let deep = app.child("deep");
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    assert_ne!(scene.effective(0), online());
    assert_eq!((effective(&app), effective(&deep)), (scene.effective(0), scene.effective(0)));
    scene.container(1).remove();
    scene.pods[1].1.remove();
    pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert_eq!(
        (scene.effective(0), effective(&app), effective(&deep)),
        (online(), online(), online())
    );
}

/// State after hotplug on v1: the cpuset is empty, and its processes are in the parent's. v2 leaves
/// them in place.
#[test]
fn processes_moved_by_v1_out_of_an_empty_cpuset_return() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ]);
    let running = scene.container(1).spawn(&Workload::Spin { threads: 2 });
    // No cgroup is too young.
    let config = PinnerConfig { settled_after: Duration::ZERO, ..scene.config(true) };
    let mut pinner = Pinner::new(config).unwrap();
    scene.pass(&mut pinner);
    let cpus = scene.effective(1);
    let (pod, container) = (scene.pods[1].1.dir("cpuset"), scene.container(1).dir("cpuset"));
    if !container.join("cpuset.cpus.effective").exists() {
        fs::write(pod.join("cgroup.procs"), running.pid().to_string()).unwrap();
        fs::write(container.join("cpuset.cpus"), "\n").unwrap();
        assert_eq!(cgroupfs::pids(&container), [0; 0]);
    }
    pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert_eq!((scene.effective(1), cgroupfs::pids(&container)), (cpus, vec![running.pid()]));
}
