//! `cpuwarden drain` as operators run it: beside an agent, without one, under another mount path,
//! with old state.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use kernel_text::CpuSet;
use pinning::PinningStatus;
use placement::Class;
use serde_json::Value;
use state_dir::{DrainRequest, Lock, Writer};

use super::agent::{command, kubelet, list, options, stdout_of};
use super::scene::{PodRequest, Scene, all_classes, online};
use crate::support::{Agent, Workload, eventually};

fn drain(scene: &Scene, more: &[&str]) -> Output {
    drain_in(scene, &scene.config(true).node.state_dir, more)
}

fn drain_in(scene: &Scene, state_dir: &Path, more: &[&str]) -> Output {
    let config = scene.config(true);
    let options = [
        format!("--kubepods={}", config.node.kubepods[0]),
        "--pod-source=none".to_owned(),
        format!("--cpu-manager-state={}", config.node.cpu_manager_state.display()),
        format!("--state-dir={}", state_dir.display()),
    ];
    command("drain", &options, more)
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The checkpoint with its first line: a magic and the FNV-1a hash of the rest.
fn sealed(body: &str) -> String {
    let hash = body.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("cpuwarden-pins-1 {hash:016x}\n{body}")
}

/// Rewrites the keys of the checkpoint's cgroups.
fn rekey(scene: &Scene, change: impl Fn(&str, &mut Value) -> String) {
    let path = scene.config(true).node.state_dir.join("pins.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut body: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    let touched = std::mem::take(body["touched"].as_object_mut().unwrap());
    assert!(!touched.is_empty());
    let rekeyed =
        touched.into_iter().map(|(path, mut was)| (change(&path, &mut was), was)).collect();
    body["touched"] = Value::Object(rekeyed);
    fs::write(path, sealed(&body.to_string())).unwrap();
}

/// A cgroup that already had all of its planned CPUs is first written after another writer took
/// some of them away.
#[test]
fn cpusets_of_a_rival_before_the_first_write_are_not_restored() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::BestEffort, cpus: 0 },
    ]);
    let before = scene.all_effective();
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    scene.container(1).write("cpuset", "cpuset.cpus", &online().first().unwrap().to_string());
    let report = pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert_eq!((report.status, scene.all_effective()), (PinningStatus::Enforcing, before.clone()));
    drop(pinner);
    stdout_of(&drain(&scene, &[]));
    assert_eq!(scene.all_effective(), before);
}

#[test]
fn a_drain_reports_the_cpusets_that_the_agent_restored() {
    let scene = Scene::new(&all_classes());
    let options = options(&scene, kubelet(&list(&scene)));
    let agent = Agent::start(
        &[&options[..], &["--pinning=enforce".into(), "--cpu-budget=1000".into()]].concat(),
    );
    let granted =
        || agent.metrics().value("cpuwarden_pinning_enforcing", &[("reason", "")]) == Some(1.0);
    eventually("a grant", || granted() && scene.effective(0).is_disjoint(&scene.effective(2)));
    let text = stdout_of(&command("drain", &options, &[]));
    assert!(
        (0..scene.pods.len()).all(|at| scene.effective(at) == online()),
        "{:?}",
        scene.all_effective()
    );
    let count = text
        .split('(')
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|count| count.parse().ok());
    assert!(text.contains("running agent") && count > Some(0), "{text}");
    assert!(
        stdout_of(&command("drain", &options, &[])).contains("nothing to drain"),
        "and now there is nothing"
    );
}

#[test]
fn a_drain_finds_what_was_written_under_another_mount_path() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    scene.pass(&mut scene.pinner(true));
    assert_ne!(scene.all_effective(), before);
    let host = tempfile::tempdir().unwrap();
    fs::create_dir_all(host.path().join("host/sys/fs")).unwrap();
    symlink("/sys/fs/cgroup", host.path().join("host/sys/fs/cgroup")).unwrap();
    let root = format!("--cgroup-root={}", host.path().join("host/sys/fs/cgroup").display());
    let text = stdout_of(&drain(&scene, &[&root]));
    assert!(!text.contains("0 cpusets"), "{text}");
    assert_eq!(scene.all_effective(), before);
}

/// Up to version 0.1 the keys were full paths that depended on the agent's mount.
#[test]
fn checkpoints_with_whole_paths_are_drained_too() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    scene.pass(&mut scene.pinner(true));
    rekey(&scene, |path, was| {
        if let Some(original) = was.as_object_mut().unwrap().remove("original") {
            was["before"] = original;
        }
        Path::new("/host/sys/fs/cgroup/cpuset")
            .join(path.trim_start_matches("/sys/fs/cgroup/cpuset/"))
            .display()
            .to_string()
    });
    stdout_of(&drain(&scene, &[]));
    assert_eq!(scene.all_effective(), before);
}

#[test]
fn a_drain_that_matches_no_cgroup_fails_and_deletes_nothing() {
    let scene = Scene::new(&all_classes());
    scene.pass(&mut scene.pinner(true));
    let confined = scene.bytes();
    rekey(&scene, |path, _| path.replace("cpuwarden-it", "elsewhere"));
    let checkpoint = scene.config(true).node.state_dir.join("pins.json");
    let text = fs::read_to_string(&checkpoint).unwrap();
    let message = error(&drain(&scene, &[]));
    assert!(message.contains("--cgroup-root") && message.contains("elsewhere"), "{message}");
    assert_eq!((fs::read_to_string(&checkpoint).unwrap(), scene.bytes()), (text, confined));
}

#[test]
fn a_checkpoint_of_an_earlier_boot_is_no_error() {
    let scene = Scene::new(&all_classes());
    scene.pass(&mut scene.pinner(true));
    let proc = tempfile::tempdir().unwrap();
    fs::create_dir_all(proc.path().join("sys/kernel/random")).unwrap();
    fs::write(proc.path().join("sys/kernel/random/boot_id"), "another\n").unwrap();
    let before = scene.bytes();
    let text = stdout_of(&drain(&scene, &[&format!("--proc-root={}", proc.path().display())]));
    assert!(text.contains("nothing to drain"), "{text}");
    assert_eq!(scene.bytes(), before);
}

/// Runtimes on v1 create a pod's cpuset empty and then fill it; the agent may write in between.
#[test]
fn a_pod_whose_original_cpuset_was_empty_is_widened() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    scene.pass(&mut scene.pinner(true));
    assert_ne!(scene.all_effective(), before);
    rekey(&scene, |path, was| {
        if path.rsplit('/').next().unwrap().starts_with("pod") {
            was["before"] = "".into();
        }
        path.to_owned()
    });
    stdout_of(&drain(&scene, &[]));
    assert_eq!(scene.all_effective(), before);
}

/// The agent can no longer read the node, but its writes must be reverted all the same.
#[test]
fn a_drain_works_while_the_passes_of_the_agent_fail() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    let sys = scene.state.path().join("sys");
    symlink("/sys", &sys).unwrap();
    let mut config = scene.config(true);
    config.node.sys_root = sys.clone();
    let mut pinner = pinning::Pinner::new(config).unwrap();
    scene.pass(&mut pinner);
    fs::remove_file(&sys).unwrap();
    DrainRequest::of(&scene.config(true).node.state_dir).make().unwrap();
    let report = pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert!(matches!(&report.status, PinningStatus::Observing(_)), "{report:?}");
    if scene.all_effective() != before {
        assert!(
            Lock::take(&scene.config(true).node.state_dir, Writer::Pinning).is_ok(),
            "the agent holds its lock"
        );
        stdout_of(&drain(&scene, &[]));
    }
    assert_eq!(scene.all_effective(), before);
    let report = pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {});
    assert!(matches!(&report.status, PinningStatus::Observing(_)), "{report:?}");
}

/// Without a checkpoint the earlier writes are unknown; the operator may request that every pod is
/// widened.
#[test]
fn every_pod_can_be_released_without_any_state() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    scene.pass(&mut scene.pinner(true));
    fs::remove_dir_all(scene.config(true).node.state_dir).unwrap();
    let text = stdout_of(&drain(&scene, &[]));
    assert!(text.contains("--every-pod"), "{text}");
    assert_ne!(scene.all_effective(), before);
    stdout_of(&drain(&scene, &["--every-pod"]));
    assert_eq!(scene.all_effective(), before);
}

/// Not even the state directory is writable: `/proc` accepts no files.
#[test]
fn a_read_only_state_directory_does_not_keep_pods_confined() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    scene.pass(&mut scene.pinner(true));
    stdout_of(&drain_in(&scene, Path::new("/proc/cpuwarden"), &["--every-pod"]));
    assert_eq!(scene.all_effective(), before);
}

/// A pod that the kubelet no longer lists, without processes in its cgroups.
#[test]
fn an_orphaned_pod_cgroup_without_processes_gives_its_cpus_back() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ]);
    let mut pinner = scene.pinner(true);
    let running = scene.container(1).spawn(&Workload::Spin { threads: 1 });
    scene.pass(&mut pinner);
    let own = scene.effective(1);
    assert_eq!(own.len(), 1);
    let rest = super::scene::index(&[scene.request(0)]);
    pinner.pass(&rest, &CpuSet::new(), &mut |_| {});
    assert_eq!(scene.effective(1), own, "it runs: the list may be wrong");
    drop(running);
    eventually("its end", || scene.container(1).read("cpuset", "cgroup.procs").is_empty());
    pinner.pass(&rest, &CpuSet::new(), &mut |_| {});
    assert_eq!((scene.effective(0), scene.effective(1)), (online(), online()));
}

/// A directory in place of the file to write stands for a full disk.
#[test]
fn a_full_state_directory_does_not_block_free_cpus() {
    let scene = Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ]);
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    assert_ne!(scene.effective(0), online());
    let obstacle = scene.config(true).node.state_dir.join("pins.json.new");
    fs::create_dir(&obstacle).unwrap();
    scene.container(1).remove();
    scene.pods[1].1.remove();
    let pass = |pinner: &mut pinning::Pinner| {
        pinner.pass(&scene.index(), &CpuSet::new(), &mut |_| {}).status
    };
    for _ in 0..2 {
        let status = pass(&mut pinner);
        assert!(
            matches!(&status, PinningStatus::Observing(reason) if reason.contains("pins.json")),
            "{status}"
        );
        assert_eq!(scene.effective(0), online());
    }
    let late = scene.tree.pod(crate::support::Qos::Burstable, &super::scene::uid(1));
    late.child(&super::scene::container_id(1));
    pass(&mut pinner);
    assert_eq!(scene.effective(0), online(), "what is not on disk is not granted");
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(pass(&mut pinner), PinningStatus::Enforcing);
    assert_ne!(scene.effective(0), online());
}

#[test]
fn a_removed_state_directory_is_created_again() {
    let scene = Scene::new(&all_classes());
    let before = scene.all_effective();
    let mut pinner = scene.pinner(true);
    scene.pass(&mut pinner);
    let state_dir = scene.config(true).node.state_dir;
    fs::remove_dir_all(&state_dir).unwrap();
    scene.pass(&mut pinner);
    assert!(Lock::take(&state_dir, Writer::Pinning).is_err(), "the agent holds the new lock");
    drop(pinner);
    stdout_of(&drain(&scene, &[]));
    assert_eq!(scene.all_effective(), before);
}
