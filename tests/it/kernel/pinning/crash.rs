//! SIGKILL after every step of a transition, in a separate process.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};
use std::time::Duration;

use kernel_text::CpuSet;
use pinning::{Pinner, Trace};
use placement::{Class, Step};

use super::scene::{self, PodRequest, Scene, online};

const KUBEPODS: &str = "CPUWARDEN_IT_KUBEPODS";
const STATE: &str = "CPUWARDEN_IT_STATE";
const KILL_AT: &str = "CPUWARDEN_IT_KILL_AT";

/// One pod of each kind: every step of theirs costs two processes.
fn requests() -> [PodRequest; 3] {
    [(Class::Share, 0), (Class::BestEffort, 0), (Class::Lse, 1)]
        .map(|(class, cpus)| PodRequest { class, cpus })
}

/// Runs one enforcing pass in a process that is killed at the event with this number, or not at
/// all.
fn enforce_and_die(scene: &Scene, at: Option<usize>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "kernel::pinning::crash::enforcing_process",
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    command.env(KUBEPODS, scene.tree.kubepods().path()).env(STATE, scene.state.path());
    command.env(KILL_AT, at.map_or(-1, |at| i64::try_from(at).unwrap()).to_string());
    command.output().unwrap()
}

#[test]
#[ignore = "not a test: the process that enforces and dies, started by enforce_and_die"]
fn enforcing_process() {
    let of = |name| std::env::var(name).unwrap();
    let die_at: i64 = of(KILL_AT).parse().unwrap();
    let config = scene::config(of(KUBEPODS).as_ref(), of(STATE).as_ref(), true);
    let mut events = 0;
    let report = Pinner::new(config).unwrap().pass(
        &scene::index(&requests()),
        &CpuSet::new(),
        &mut |trace| {
            let what = match trace {
                Trace::Intent(_) => "intent",
                Trace::Done(Step::Write { .. }) => "write",
                Trace::Done(Step::Verify { .. }) => "verify",
                Trace::Done(Step::Release { .. }) => "release",
                Trace::Done(Step::Grant { .. }) => "grant",
                Trace::Committed => "committed",
            };
            println!("\nevent {what}");
            if events == die_at {
                rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                )
                .unwrap();
            }
            events += 1;
        },
    );
    println!("\nstatus {}", report.status);
}

fn events(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_prefix("event ")).map(str::to_owned).collect()
}

#[test]
fn a_kill_after_any_step_changes_no_placement() {
    let scene = Scene::new(&requests());
    let untouched = enforce_and_die(&scene, None);
    let whole = events(&untouched);
    let meant = scene.all_effective();
    assert_eq!(
        whole.first().map(String::as_str),
        Some("intent"),
        "{}",
        String::from_utf8_lossy(&untouched.stdout)
    );
    assert!(
        ["write", "verify", "grant", "committed"]
            .iter()
            .all(|kind| whole.iter().any(|event| event == kind))
    );
    for at in 0..whole.len() {
        give_back(&scene);
        let killed = enforce_and_die(&scene, Some(at));
        assert_eq!((killed.status.signal(), events(&killed)), (Some(9), whole[..=at].to_vec()));
        // The grants on disk match the kernel, whatever else was in progress.
        let mut pinner = scene.pinner(true);
        let report = scene.pass(&mut pinner);
        assert_eq!(report.status, pinning::PinningStatus::Enforcing);
        assert_eq!(scene.all_effective(), meant, "killed at event {at}, {}", whole[at]);
        assert_eq!(scene.pass(&mut pinner).operations.iter().count(), 0);
    }
}

fn give_back(scene: &Scene) {
    let config = scene.drain_config();
    pinning::drain(&config, Duration::ZERO).unwrap();
    // A fresh node: nothing is known of these pods, and nobody has run on CPUs of its own.
    std::fs::remove_dir_all(config.node.state_dir).unwrap();
    assert!(
        (0..scene.pods.len()).all(|at| scene.effective(at) == online()),
        "{:?}",
        scene.all_effective()
    );
}
