//! Grants, releases and what is taken back.

use std::fs;
use std::time::{Duration, Instant};

use kernel_text::CpuSet;
use pinning::{Checkpoint, Operation, Standing};
use placement::Class;

use super::scene::{Scene, Wish, all_classes, container_id, effective, online};
use crate::support::{Qos, Workload};

#[test]
fn no_foreign_thread_runs_on_a_granted_cpu_after_the_grant() {
    let scene = Scene::new(&all_classes());
    // Threads begin on the lowest CPUs, which are those to be granted.
    let sharers = u32::try_from(online().len() / 2).unwrap().max(2);
    let spin = |at| Workload::Spin { threads: if at < 2 { sharers } else { 1 } };
    let running: Vec<_> = (0..scene.pods.len()).map(|at| scene.container(at).spawn(&spin(at))).collect();
    let report = scene.pass(&mut scene.pinner(true));
    assert_eq!(report.standing, Standing::Enforcing);
    assert_eq!(report.pins.len(), scene.pods.len() - 2);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        for (at, process) in running.iter().enumerate() {
            let allowed = scene.effective(at);
            let where_they_run = cpus_of_running_threads(process.pid());
            assert!(where_they_run.is_subset(&allowed), "pod {at} runs on {where_they_run}, allowed {allowed}");
        }
    }
    let exclusive: Vec<CpuSet> = (2..scene.pods.len()).map(|at| scene.effective(at)).collect();
    assert!(exclusive.iter().all(|cpus| cpus.is_disjoint(&scene.effective(0))), "the share pool is on granted CPUs");
    assert!(exclusive[0].is_disjoint(&scene.effective(1)), "best effort is on an LSE pod's CPUs");
    assert!(exclusive[1..].iter().all(|cpus| cpus.is_subset(&scene.effective(1))), "best effort may run on LSR's CPUs");
}

/// CPUs on which the process's threads in state R are: field 39 of `stat`.
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
    assert!(first.operations.count(Operation::Write) > 0 && first.operations.count(Operation::Grant) > 0);
    let (bytes, second) = (scene.bytes(), scene.pass(&mut pinner));
    assert_eq!(second.operations.iter().count(), 0, "{:?}", second.operations);
    drop(pinner);
    let after = scene.pass(&mut scene.pinner(true));
    assert_eq!((after.operations.iter().count(), scene.bytes()), (0, bytes));
    let pins = |report: &pinning::Report| report.pins.iter().map(|pin| pin.cpus.clone()).collect::<Vec<_>>();
    assert_eq!(pins(&after), pins(&first));
}

#[test]
fn without_its_checkpoint_running_pods_keep_what_their_cpusets_show() {
    let scene = Scene::new(&all_classes());
    let last = u32::try_from(online().len() - 1).unwrap();
    scene.pass(&mut scene.pinner(true));
    // As if it had been granted other CPUs than a fresh plan would give it.
    let cpus: CpuSet = (0..).take(scene.effective(2).len()).map(|back| last - back).collect();
    let (pod, container) = (scene.pods[2].1.clone(), scene.container(2));
    for cgroup in [&pod, &container] {
        cgroup.write("cpuset", "cpuset.cpus", &online().to_string());
    }
    for cgroup in [&container, &pod] {
        cgroup.write("cpuset", "cpuset.cpus", &cpus.to_string());
    }
    fs::write(scene.config(true).state_dir.join("pins.json"), "torn").unwrap();
    scene.pass(&mut scene.pinner(true));
    assert_eq!(scene.effective(2), cpus);
    assert!(scene.effective(0).is_disjoint(&cpus));
}

#[test]
fn a_new_pod_that_shares_is_confined_by_the_next_pass_and_its_overlap_is_counted() {
    let scene = Scene::new(&all_classes());
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let granted = scene.effective(2);
    let late = scene.tree.pod(Qos::BestEffort, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff").child(&container_id(99));
    let _running = late.spawn(&Workload::Spin { threads: 1 });
    assert!(!effective(&late).is_disjoint(&granted));
    let overlaps = |report: pinning::Report| report.overlaps.into_values().max().unwrap();
    assert!(overlaps(scene.pass(&mut pinner)) > Duration::ZERO);
    assert!(effective(&late).is_disjoint(&granted), "a pod of which nothing is known shares");
    assert_eq!(overlaps(scene.pass(&mut pinner)), Duration::ZERO);
}

#[test]
fn cpus_of_a_pod_that_is_gone_are_everybodys_again() {
    let scene = Scene::new(&[Wish { class: Class::Share, cpus: 0 }, Wish { class: Class::Lse, cpus: 1 }]);
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    assert_eq!(scene.effective(0).len(), online().len() - 1);
    scene.container(1).remove();
    scene.pods[1].1.remove();
    pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert_eq!(scene.effective(0), online());
}

#[test]
fn draining_gives_back_what_was_there() {
    let scene = Scene::new(&all_classes());
    let (before, effective_before) = (scene.bytes(), scene.all_effective());
    scene.pass(&mut scene.pinner(true));
    assert_ne!(scene.all_effective(), effective_before);
    let config = scene.config(true);
    let kubepods = config.kubepods.clone();
    let drain =
        || pinning::drain(&config.hierarchy, kubepods.clone(), &config.sys_root, &config.state_dir, Duration::ZERO);
    let drained = drain().unwrap();
    assert!(drained.written > 0 && drained.errors.is_empty(), "{drained:?}");
    assert_eq!(scene.all_effective(), effective_before);
    for (path, now) in scene.bytes() {
        // v2: the kernel takes no empty set while there are processes; all possible CPUs stand for it.
        let was = &before[&path];
        let full = cgroupfs::node::cpu_list(&config.sys_root, "possible").unwrap().to_string();
        assert!(now == *was || (was.trim().is_empty() && now.trim() == full), "{path:?}: {now:?}, before {was:?}");
    }
    assert_eq!(Checkpoint::read(&config.state_dir).unwrap(), None);
    assert_eq!(drain().unwrap().written, 0);
}

#[test]
fn two_agents_do_not_write_on_one_node() {
    let scene = Scene::new(&all_classes());
    let mut first = scene.pinner(true);
    assert_eq!(scene.pass(&mut first).standing, Standing::Enforcing);
    let second = scene.pass(&mut scene.pinner(true));
    assert!(matches!(second.standing, Standing::Observing(reason) if reason.contains("another cpuwarden")));
}
