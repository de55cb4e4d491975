//! Grants, releases and reverted writes.

use std::fs;
use std::time::{Duration, Instant};

use kernel_text::CpuSet;
use pinning::{DrainOutcome, Operation, PassReport, PinningStatus, PodOutcome};
use placement::Class;
use state_dir::PinningCheckpoint;

use super::scene::{PodRequest, Scene, all_classes, container_id, effective, online};
use crate::support::{Qos, Workload};

#[test]
fn no_foreign_thread_runs_on_a_granted_cpu_after_the_grant() {
    let scene = Scene::new(&all_classes());
    // Threads start on the lowest CPUs, which are those to be granted.
    let sharers = u32::try_from(online().len() / 2).unwrap().max(2);
    let spin = |at| Workload::Spin { threads: if at < 2 { sharers } else { 1 } };
    let running: Vec<_> =
        (0..scene.pods.len()).map(|at| scene.container(at).spawn(&spin(at))).collect();
    let report = scene.pass(&mut scene.pinner(true));
    assert_eq!(report.status, PinningStatus::Enforcing);
    assert_eq!(report.pins.len(), scene.pods.len() - 2);
    let closed: Vec<CpuSet> =
        (0..scene.pods.len()).map(|at| granted_to_others(&scene, at, &report)).collect();
    let (began, mut seen) = (Instant::now(), CpuSet::new());
    while began.elapsed() < Duration::from_millis(500) {
        for (at, process) in running.iter().enumerate() {
            let where_they_run = cpus_of_running_threads(process.pid());
            assert!(
                where_they_run.is_disjoint(&closed[at]),
                "pod {at} runs on {where_they_run}, not its {}",
                closed[at]
            );
            seen = seen.union(&where_they_run);
        }
    }
    assert!(seen.len() >= 2, "hardly anybody was seen to run: {seen}");
    let exclusive: Vec<CpuSet> = (2..scene.pods.len()).map(|at| scene.effective(at)).collect();
    assert!(
        exclusive.iter().all(|cpus| cpus.is_disjoint(&scene.effective(0))),
        "the shared pool is on granted CPUs"
    );
    assert!(exclusive[0].is_disjoint(&scene.effective(1)), "best effort is on an LSE pod's CPUs");
    assert!(
        exclusive[1..].iter().all(|cpus| cpus.is_subset(&scene.effective(1))),
        "best effort may run on LSR's CPUs"
    );
}

/// CPUs that other pods hold exclusively, according to the report.
fn granted_to_others(scene: &Scene, at: usize, report: &PassReport) -> CpuSet {
    let others = (2..scene.pods.len()).filter(|&owner| owner != at);
    let closed =
        others.filter(|&owner| !scene.request(at).class.may_share_with(scene.request(owner).class));
    let pin =
        |owner: usize| report.pins.iter().find(|pin| pin.pod == format!("pod-{owner}")).unwrap();
    closed.fold(CpuSet::new(), |all, owner| all.union(&pin(owner).cpus.parse().unwrap()))
}

/// CPUs of the process's threads in state R: field 39 of `stat`.
fn cpus_of_running_threads(pid: u32) -> CpuSet {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let cpu = |stat: String| {
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        (fields[0] == "R").then(|| fields[36].parse().unwrap())
    };
    tasks.filter_map(|task| cpu(fs::read_to_string(task.path().join("stat")).ok()?)).collect()
}

#[test]
fn the_second_pass_writes_nothing_and_a_restart_keeps_every_cpu() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    let first = scene.pass(&mut pinner);
    assert!(
        first.operations.count(Operation::Write) > 0
            && first.operations.count(Operation::Grant) > 0
    );
    let (bytes, second) = (scene.bytes(), scene.pass(&mut pinner));
    assert_eq!(second.operations.iter().count(), 0, "{:?}", second.operations);
    drop(pinner);
    let after = scene.pass(&mut scene.pinner(true));
    assert_eq!((after.operations.iter().count(), scene.bytes()), (0, bytes));
    let pins =
        |report: &PassReport| report.pins.iter().map(|pin| pin.cpus.clone()).collect::<Vec<_>>();
    assert_eq!(pins(&after), pins(&first));
}

#[test]
fn without_a_checkpoint_pods_keep_their_cpusets() {
    let scene = Scene::new(&all_classes());
    let last = u32::try_from(online().len() - 1).unwrap();
    scene.pass(&mut scene.pinner(true));
    // Simulates a grant of other CPUs than a fresh plan would choose.
    let cpus: CpuSet = (0..).take(scene.effective(2).len()).map(|back| last - back).collect();
    let (pod, container) = (scene.pods[2].1.clone(), scene.container(2));
    for cgroup in [&pod, &container] {
        cgroup.write("cpuset", "cpuset.cpus", &online().to_string());
    }
    for cgroup in [&container, &pod] {
        cgroup.write("cpuset", "cpuset.cpus", &cpus.to_string());
    }
    fs::write(scene.config(true).node.state_dir.join("pins.json"), "torn").unwrap();
    scene.pass(&mut scene.pinner(true));
    assert_eq!(scene.effective(2), cpus);
    assert!(scene.effective(0).is_disjoint(&cpus));
}

#[test]
fn a_new_shared_pod_is_confined_by_the_next_pass() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let granted = scene.effective(2);
    let late = scene
        .tree
        .pod(Qos::BestEffort, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff")
        .child(&container_id(99));
    let _running = late.spawn(&Workload::Spin { threads: 1 });
    assert!(!effective(&late).is_disjoint(&granted));
    let overlaps = |report: PassReport| report.overlaps.into_values().max().unwrap();
    assert!(overlaps(scene.pass(&mut pinner)) > Duration::ZERO);
    assert!(effective(&late).is_disjoint(&granted), "a pod of which nothing is known shares");
    assert_eq!(overlaps(scene.pass(&mut pinner)), Duration::ZERO);
}

#[test]
fn cpus_of_a_pod_that_is_gone_return_to_the_shared_pool() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ]);
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    assert_eq!(scene.effective(0).len(), online().len() - 1);
    scene.container(1).remove();
    scene.pods[1].1.remove();
    pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert_eq!(scene.effective(0), online());
}

#[test]
fn granted_cpus_stay_exclusive_while_pods_swap() {
    let mut scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let (shared, own) = (scene.request(0), scene.request(2));
    for (sharer, owner) in [(2, 0), (0, 2)] {
        // Both at once, and then one after the other.
        scene.change(sharer, shared);
        scene.change(owner, own);
        let report = scene.pass(&mut pinner);
        assert!(
            report.operations.count(Operation::Release) > 0
                && report.operations.count(Operation::Grant) > 0
        );
        assert_eq!(scene.effective(owner).len() as u64, own.cpus);
        assert!(scene.effective(sharer).is_disjoint(&scene.effective(owner)));
        let decision_of = |at: usize| {
            report.decisions.iter().find(|decision| *decision.uid == *scene.pods[at].0).unwrap()
        };
        let granted = scene.effective(owner).to_string();
        assert!(
            matches!(&decision_of(owner).outcome, PodOutcome::Pinned { cpus, .. } if *cpus == granted),
            "{report:?}"
        );
        assert_eq!(decision_of(sharer).outcome, PodOutcome::Released);
        scene.change(owner, shared);
        scene.pass(&mut pinner);
        assert_eq!(scene.effective(owner), scene.effective(sharer));
        scene.change(owner, own);
        scene.pass(&mut pinner);
    }
}

#[test]
fn draining_gives_back_what_was_there() {
    let scene = Scene::new(&all_classes());
    let (before, effective_before) = (scene.bytes(), scene.all_effective());
    scene.pass(&mut scene.pinner(true));
    assert_ne!(scene.all_effective(), effective_before);
    let config = scene.config(true);
    let drain = || pinning::drain(&scene.drain_config(), Duration::ZERO).unwrap();
    let drained = drain();
    assert!(
        matches!(&drained, DrainOutcome::Here(it) if it.written > 0 && it.errors.is_empty()),
        "{drained:?}"
    );
    assert_eq!((scene.bytes(), scene.all_effective()), (before, effective_before));
    assert_eq!(PinningCheckpoint::read(&config.node.state_dir).unwrap(), None);
    assert_eq!(drain(), DrainOutcome::Nothing);
}

/// Probes with a separate pod, because current kernels reject the write.
fn takes_an_empty_set_with_processes(scene: &Scene) -> bool {
    let probe = scene.tree.pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0deeee");
    let _running = probe.spawn(&Workload::Spin { threads: 1 });
    probe.write("cpuset", "cpuset.cpus", &online().to_string());
    fs::write(probe.dir("cpuset").join("cpuset.cpus"), "\n").is_ok()
}

#[test]
fn draining_restores_the_cpusets_of_running_pods() {
    let scene = Scene::new(&all_classes());
    let takes_empty = takes_an_empty_set_with_processes(&scene);
    let _running: Vec<_> = (0..scene.pods.len())
        .map(|at| scene.container(at).spawn(&Workload::Spin { threads: 1 }))
        .collect();
    let (before, effective_before) = (scene.bytes(), scene.all_effective());
    scene.pass(&mut scene.pinner(true));
    assert_ne!(scene.all_effective(), effective_before);
    let config = scene.config(true);
    let drained = pinning::drain(&scene.drain_config(), Duration::ZERO).unwrap();
    assert!(matches!(&drained, DrainOutcome::Here(it) if it.errors.is_empty()), "{drained:?}");
    assert_eq!(scene.all_effective(), effective_before);
    let full = cgroupfs::node::cpu_list(&config.node.sys_root, "possible").unwrap().to_string();
    for (path, now) in scene.bytes() {
        let was = &before[&path];
        let stands_for_empty = was == "\n" && now.trim_end() == full && !takes_empty;
        assert!(now == *was || stands_for_empty, "{path:?}: {now:?}, before {was:?}");
    }
}

#[test]
fn two_agents_do_not_write_on_one_node() {
    let scene = Scene::new(&all_classes());
    let mut first = scene.pinner(true);
    assert_eq!(scene.pass(&mut first).status, PinningStatus::Enforcing);
    let second = scene.pass(&mut scene.pinner(true));
    assert!(
        matches!(second.status, PinningStatus::Observing(reason) if reason.contains("another cpuwarden"))
    );
}
