//! The actor on a directory that looks like a node: steps, their restoration, crashes after each
//! step, other writers. `tests/it/kernel/yielding.rs` repeats the essentials on real cgroups.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use kernel_text::CgroupVersion;
use kubepods::model::Resize;
use state_dir::ActingMode;
use state_dir::{Lock, Setting, Writer};
use yielding::rules::{ControllerSettings, Step};
use yielding::{Actor, ActorConfig, Feature, Mode, Why, keep_restoring, restore};

use node::{BATCH, CART, Node, SPARK, container};

#[test]
fn each_step_writes_only_best_effort_pods_and_their_containers() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let (before, mut actor) = (node.files(), node.actor());
        assert!(node.pass(&mut actor, 0).restricted.is_empty());
        let report = node.reach(&mut actor, Step::Idle);
        assert_eq!(report.pods, 2);
        assert_eq!(report.restricted, [BATCH.into(), SPARK.into()]);
        let (batch, spark) =
            (format!("kubepods/besteffort/pod{BATCH}"), format!("kubepods/burstable/pod{SPARK}"));
        let idle = [
            (format!("cpu/{batch}/cpu.idle"), "1".to_owned()),
            (format!("cpu/{spark}/cpu.idle"), "1".to_owned()),
        ];
        assert_eq!(node.changed(&before), idle);
        let report = node.reach(&mut actor, Step::FewerCpus);
        assert_eq!(report.writes.written, [(Setting::Cpus, 2)].into());
        let cpus = |path: &str| (format!("cpuset/{}/cpuset.cpus", container(path)), "0-3".into());
        let fewer = [idle.to_vec(), vec![cpus(&batch), cpus(&spark)]].concat();
        assert_eq!(node.changed(&before), fewer);
        let report = node.reach(&mut actor, Step::Quota);
        // On v1 a Burstable pod keeps its quota: its containers could not start again.
        let (file, value, pods) = match version {
            CgroupVersion::V1 => ("cpu.cfs_quota_us", "50000", &[&batch][..]),
            CgroupVersion::V2 => ("cpu.max", "50000 100000", &[&batch, &spark][..]),
        };
        assert_eq!(report.writes.written, [(Setting::Quota, pods.len() as u64)].into());
        let changed = node.changed(&before);
        assert_eq!(changed.len(), 4 + pods.len(), "{changed:?}");
        for pod in pods {
            let quota = (format!("cpu/{pod}/{file}"), value.to_owned());
            assert!(changed.contains(&quota), "{changed:?}");
        }
        assert!(!changed.iter().any(|(path, _)| path.contains(CART)), "{changed:?}");
    }
}

#[test]
fn a_pass_without_change_writes_nothing() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    // 10 ms of 1 s of an idle service: between the thresholds, so the target stays.
    let stamp = |node: &Node| {
        fs::metadata(node.dir.path().join("state/yields.json")).unwrap().modified().unwrap()
    };
    let before = stamp(&node);
    for _ in 0..5 {
        let report = node.pass_with(&mut actor, 500, false);
        if report.transition.is_none() {
            assert!(report.writes.written.is_empty() && report.writes.repaired == 0, "{report:?}");
            assert_eq!(stamp(&node), before);
        } else {
            break;
        }
    }
}

#[test]
fn everything_is_as_before_after_stop_crash_and_drain_at_each_step() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        for step in [Step::Idle, Step::FewerCpus, Step::Quota] {
            let mut node = Node::new(version);
            let before = node.files();
            // Stop.
            let mut actor = node.actor();
            node.reach(&mut actor, step);
            assert_ne!(node.files(), before);
            let (restored, errors) = actor.give_back();
            assert!(restored > 0 && errors.is_empty());
            assert_eq!(node.changed(&before), [], "stop at {step:?}");
            // A crash drops the actor without giving back; the next one starts without a step.
            let mut actor = node.actor();
            node.reach(&mut actor, step);
            drop(actor);
            let mut next = node.actor();
            let report = node.pass(&mut next, 0);
            assert!(report.writes.restored > 0 && report.writes.errors.is_empty(), "{report:?}");
            assert_eq!(node.changed(&before), [], "crash at {step:?}");
            // A drain.
            node.reach(&mut next, step);
            let report = node.pass_with(&mut next, 500, true);
            assert_eq!(report.mode, Mode::Observing(Why::Drained));
            assert_eq!(node.changed(&before), [], "drain at {step:?}");
            assert!(
                Lock::take(&node.config().state_dir, Writer::Yielding).is_ok(),
                "the lock is released"
            );
            // A crash, then a start without --best-effort or an uninstall.
            let mut actor = node.actor();
            node.reach(&mut actor, step);
            drop(actor);
            assert!(restore(&node.config(), Duration::ZERO).unwrap() > 0);
            assert_eq!(node.changed(&before), [], "restore at {step:?}");
            assert!(!node.dir.path().join("state/yields.json").exists());
        }
    }
}

/// The checkpoint holds a value before it is written. A crash in between leaves the value before.
#[test]
fn a_crash_between_the_checkpoint_and_the_write_is_restored() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        for step in [Step::Idle, Step::FewerCpus, Step::Quota] {
            let mut node = Node::new(version);
            let before = node.files();
            let mut actor = node.actor();
            node.reach(&mut actor, step);
            // The next change of a target, with the values before it.
            let last = loop {
                let last = node.files();
                let report = node.pass(&mut actor, 500);
                if !report.writes.written.is_empty() || report.target.quota_cores == Some(0.1) {
                    break last;
                }
            };
            drop(actor);
            for (path, text) in last {
                fs::write(path, text).unwrap();
            }
            let errors = node.pass(&mut node.actor(), 0).writes.errors;
            assert_eq!(errors, Vec::<String>::new());
            assert_eq!(node.changed(&before), [], "{version:?}, {step:?}");
        }
    }
}

#[test]
fn a_container_confined_to_other_cpus_keeps_the_floor() {
    let mut node = Node::new(CgroupVersion::V2);
    let cpus = format!("cpuset/{}/cpuset.cpus", container(&node.pods()[0].0));
    let read = |node: &Node| fs::read_to_string(node.dir.path().join(&cpus)).unwrap();
    // Step 2 keeps the CPUs 0 to 3.
    node.file(&cpus, "3-7\n");
    let mut actor = node.actor();
    let report = node.reach(&mut actor, Step::FewerCpus);
    assert_eq!(report.writes.written, [(Setting::Cpus, 2)].into());
    assert_eq!(read(&node).trim(), "3-4");
    actor.give_back();
    node.file(&cpus, "2-7\n");
    let settings = ControllerSettings { floor_cpus: 3, ..ControllerSettings::default() };
    let mut actor = Actor::new(ActorConfig { settings, ..node.config() }, node.start);
    node.reach(&mut actor, Step::FewerCpus);
    assert_eq!(read(&node).trim(), "2-4");
}

#[test]
fn best_effort_keeps_off_the_reserved_cpus() {
    let mut node = Node::new(CgroupVersion::V2);
    let reserved = "0-1".parse().unwrap();
    let mut actor = Actor::new(ActorConfig { reserved, ..node.config() }, node.start);
    node.reach(&mut actor, Step::FewerCpus);
    let cpus = format!("cpuset/{}/cpuset.cpus", container(&node.pods()[0].0));
    assert_eq!(fs::read_to_string(node.dir.path().join(cpus)).unwrap().trim(), "2-5");
}

/// The plain files divide nothing, so the test does, as kernels before 6.10.
#[test]
fn a_burst_of_another_program_is_lowered_for_a_quota_and_restored_after_it() {
    for (version, file, max) in [
        (CgroupVersion::V1, "cpu.cfs_burst_us", "cpu.cfs_quota_us"),
        (CgroupVersion::V2, "cpu.max.burst", "cpu.max"),
    ] {
        for divided in [false, true] {
            let mut node = Node::new(version);
            let pod = format!("cpu/{}", node.pods()[0].0);
            let (file, max) = (format!("{pod}/{file}"), format!("{pod}/{max}"));
            node.file(&file, "90000");
            let read = |node: &Node, path: &str| {
                fs::read_to_string(node.dir.path().join(path)).unwrap().trim().to_owned()
            };
            let (before, mut actor) = (node.files(), node.actor());
            node.reach(&mut actor, Step::Quota);
            assert!(read(&node, &max).starts_with("50000"));
            assert_eq!(read(&node, &file), "50000", "a quota below the burst gets EINVAL");
            while node.pass(&mut actor, 500).target.quota_cores > Some(0.5) {}
            assert_eq!(read(&node, &file), "25000");
            if divided {
                node.file(&file, "25");
            }
            actor.give_back();
            assert_eq!(node.changed(&before), [], "{version:?}, {divided}");
            // A crash.
            let mut actor = node.actor();
            node.reach(&mut actor, Step::Quota);
            drop(actor);
            assert!(restore(&node.config(), Duration::ZERO).unwrap() > 0);
            assert_eq!(node.changed(&before), [], "{version:?}, after a crash");
        }
    }
}

#[test]
fn a_burst_that_another_program_sets_later_stays() {
    let mut node = Node::new(CgroupVersion::V2);
    let file = format!("cpu/{}/cpu.max.burst", node.pods()[0].0);
    let read = |node: &Node| fs::read_to_string(node.dir.path().join(&file)).unwrap();
    node.file(&file, "90000");
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    node.file(&file, "40000");
    while node.pass(&mut actor, 500).target.quota_cores > Some(0.5) {}
    assert_eq!(read(&node), "25000");
    actor.give_back();
    assert_eq!(read(&node), "40000");
}

#[test]
fn a_burst_is_restored_also_under_the_quota_of_another_program() {
    let mut node = Node::new(CgroupVersion::V2);
    let file = |name: &str| format!("cpu/{}/{name}", node.pods()[0].0);
    let (burst, max) = (file("cpu.max.burst"), file("cpu.max"));
    node.file(&burst, "90000");
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    node.file(&max, "70000 100000");
    actor.give_back();
    let read = |path: &str| fs::read_to_string(node.dir.path().join(path)).unwrap();
    assert_eq!((read(&max).as_str(), read(&burst).as_str()), ("70000 100000", "70000"));
}

#[test]
fn a_v1_container_with_wider_nested_cpusets_keeps_its_cpus() {
    for (version, expected) in [(CgroupVersion::V1, "0-7"), (CgroupVersion::V2, "0-3")] {
        let mut node = Node::new(version);
        let path = format!("cpuset/{}/cpuset.cpus", container(&node.pods()[0].0));
        let nested = path.replace("cpuset.cpus", "docker/cpuset.cpus");
        node.file(&nested, "0-5\n");
        let mut actor = node.actor();
        let report = node.reach(&mut actor, Step::FewerCpus);
        let read = |path: &str| fs::read_to_string(node.dir.path().join(path)).unwrap();
        assert_eq!(read(&path).trim(), expected, "{report:?}");
        assert_eq!(read(&nested).trim(), "0-5");
    }
}

#[test]
fn a_cpuset_that_is_held_later_stays_and_is_restored() {
    let mut node = Node::new(CgroupVersion::V1);
    let path = format!("cpuset/{}/cpuset.cpus", container(&node.pods()[0].0));
    let read =
        |node: &Node| fs::read_to_string(node.dir.path().join(&path)).unwrap().trim().to_owned();
    let mut actor = node.actor();
    node.reach(&mut actor, Step::FewerCpus);
    assert_eq!(read(&node), "0-3");
    node.file(&path.replace("cpuset.cpus", "docker/cpuset.cpus"), "0-3\n");
    node.reach(&mut actor, Step::Quota);
    assert_eq!(read(&node), "0-3");
    actor.give_back();
    assert_eq!(read(&node), "0-7");
}

#[test]
fn cpu_idle_is_cleared_while_the_kubelet_resizes_a_pod() {
    let mut node = Node::new(CgroupVersion::V2);
    let files = [0, 1].map(|pod| format!("cpu/{}/cpu.idle", node.pods()[pod].0));
    let idle = |node: &Node| {
        let read = |file: &String| fs::read_to_string(node.dir.path().join(file)).unwrap();
        files.each_ref().map(|file| read(file).trim().to_owned())
    };
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Idle);
    assert_eq!(idle(&node), ["1", "1"]);
    node.resize = Some(Resize::InProgress);
    node.pass(&mut actor, 20);
    assert_eq!(idle(&node), ["1", "0"]);
    // The kubelet's new weight becomes the original.
    let weight = format!("cpu/{}/cpu.weight", node.pods()[1].0);
    node.file(&weight, "777\n");
    node.resize = None;
    let report = node.pass(&mut actor, 20);
    assert_eq!((idle(&node), report.writes.repaired), (["1".into(), "1".into()], 0));
    // As the kernel does with cpu.idle.
    node.file(&weight, "100\n");
    actor.give_back();
    assert_eq!(fs::read_to_string(node.dir.path().join(weight)).unwrap().trim(), "777");
}

#[test]
fn observing_decides_and_writes_nothing() {
    let mut node = Node::new(CgroupVersion::V2);
    let before = node.files();
    let mut actor =
        Actor::new(ActorConfig { best_effort: ActingMode::Observe, ..node.config() }, node.start);
    let report = node.reach(&mut actor, Step::Quota);
    assert_eq!(
        report.mode,
        Mode::Observing(Why::Configured(Feature::BestEffort, ActingMode::Observe))
    );
    assert_eq!(node.changed(&before), []);
    assert!(!node.dir.path().join("state").exists());
}

#[test]
fn the_weight_that_the_kernel_resets_with_cpu_idle_is_restored() {
    for (version, file, default) in
        [(CgroupVersion::V1, "cpu.shares", "1024"), (CgroupVersion::V2, "cpu.weight", "100")]
    {
        let mut node = Node::new(version);
        let before = node.files();
        let mut actor = node.actor();
        node.reach(&mut actor, Step::Idle);
        // As the kernel does when cpu.idle is cleared. The test does it before, because no kernel
        // is involved.
        for pod in [&node.pods()[0].0, &node.pods()[1].0] {
            node.file(&format!("cpu/{pod}/{file}"), default);
        }
        actor.give_back();
        assert_eq!(node.changed(&before), []);
    }
}

#[test]
fn a_value_of_another_writer_becomes_the_original() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.reach(&mut actor, Step::FewerCpus);
    let cpus = format!("cpuset/{}/cpuset.cpus", container(&node.pods()[0].0));
    let read =
        |node: &Node| fs::read_to_string(node.dir.path().join(&cpus)).unwrap().trim().to_owned();
    // The kubelet moves the container to the CPUs that are left.
    node.file(&cpus, "2-7\n");
    let report = node.pass(&mut actor, 20);
    assert_eq!((report.writes.repaired, read(&node).as_str()), (1, "2-3"));
    actor.give_back();
    assert_eq!(read(&node), "2-7");
}

#[test]
fn a_value_written_after_ours_is_not_overwritten_by_the_restoration() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    let max = format!("cpu/{}/cpu.max", node.pods()[0].0);
    node.file(&max, "70000 100000\n");
    actor.give_back();
    assert_eq!(fs::read_to_string(node.dir.path().join(max)).unwrap().trim(), "70000 100000");
}

/// Passes before each of which another program clears `cpu.idle` of these pods.
fn insist(node: &mut Node, actor: &mut Actor, pods: &[usize], passes: usize) -> (Vec<Mode>, u64) {
    let idle: Vec<_> =
        pods.iter().map(|&pod| format!("cpu/{}/cpu.idle", node.pods()[pod].0)).collect();
    let mut conflicts = 0;
    let pass = |_| {
        idle.iter().for_each(|file| node.file(file, "0\n"));
        let report = node.pass(actor, 20);
        conflicts += report.writes.conflicts;
        report.mode
    };
    let modes = (0..passes).map(pass).collect();
    (modes, conflicts)
}

#[test]
fn a_pod_that_undoes_its_restriction_ends_it_for_no_other_pod() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Idle);
    let (modes, conflicts) = insist(&mut node, &mut actor, &[0], 6);
    assert!(modes.iter().all(|mode| *mode == Mode::Enforcing), "{modes:?}");
    assert_eq!(conflicts, 1, "reported once");
    let idle = [0, 1].map(|pod| format!("cpu/{}/cpu.idle", node.pods()[pod].0));
    let read = |node: &Node| idle.each_ref().map(|file| node.read(file));
    let mut repairs = 0;
    for _ in 0..30 {
        node.file(&idle[0], "0\n");
        let report = node.pass(&mut actor, 20);
        assert_eq!(report.mode, Mode::Enforcing);
        assert_eq!(read(&node)[1], "1", "the other pod");
        assert_eq!(report.writes.repaired, u64::from(read(&node)[0] == "1"));
        repairs += report.writes.repaired;
    }
    assert_eq!(repairs, 3, "once in ten seconds");
}

#[test]
fn a_writer_that_insists_in_two_namespaces_makes_the_actor_observe() {
    for (namespace, expected) in [("n", Mode::Enforcing), ("m", Mode::Observing(Why::Paused))] {
        let mut node = Node::new(CgroupVersion::V2);
        node.spark_namespace = namespace;
        let mut actor = node.actor();
        node.reach(&mut actor, Step::Idle);
        let (modes, conflicts) = insist(&mut node, &mut actor, &[0, 1], 7);
        assert_eq!(conflicts, 2);
        assert_eq!((&modes[5], &modes[6]), (&Mode::Enforcing, &expected));
    }
}

#[test]
fn a_tighter_quota_of_the_pod_stays() {
    let mut node = Node::new(CgroupVersion::V2);
    let max = format!("cpu/{}/cpu.max", node.pods()[1].0);
    node.file(&max, "20000 100000\n");
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    assert_eq!(fs::read_to_string(node.dir.path().join(max)).unwrap().trim(), "20000 100000");
}

#[test]
fn the_active_pod_gets_the_quota_that_an_idle_one_does_not_use() {
    let mut node = Node::new(CgroupVersion::V2);
    node.uses_ms = 3_000;
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    let quotas = [0, 1].map(|pod| {
        let max = format!("cpu/{}/cpu.max", node.pods()[pod].0);
        fs::read_to_string(node.dir.path().join(max)).unwrap().trim().to_owned()
    });
    // One core, and the floor of a tenth.
    assert_eq!(quotas, ["90000 100000", "10000 100000"]);
}

#[test]
fn the_utilization_rule_restricts_nothing_without_best_effort_pods() {
    let mut node = Node::new(CgroupVersion::V2);
    (node.traced, node.present) = (false, false);
    let mut actor = node.actor();
    for _ in 0..5 {
        let report = node.pass(&mut actor, 0);
        assert_eq!((report.target.step(), report.pods), (Step::None, 0));
    }
    node.present = true;
    assert_eq!(node.pass(&mut actor, 0).target.step(), Step::Quota, "all CPUs are busy");
    node.present = false;
    let steps: Vec<Step> = (0..20).map(|_| node.pass(&mut actor, 0).target.step()).collect();
    assert_eq!(steps.last(), Some(&Step::None), "{steps:?}");
}

#[test]
fn a_second_agent_only_observes() {
    let mut node = Node::new(CgroupVersion::V2);
    let _first = Lock::take(&node.config().state_dir, Writer::Yielding).unwrap();
    let before = node.files();
    let mut actor = node.actor();
    let report = node.reach(&mut actor, Step::Quota);
    let Mode::Observing(why @ Why::NoState(_)) = report.mode else { panic!("{report:?}") };
    assert!(why.to_string().contains("locked"), "{why}");
    assert_eq!(node.changed(&before), []);
    assert!(restore(&node.config(), Duration::ZERO).is_err(), "the lock is held");
}

#[test]
fn a_failed_restoration_is_tried_again_until_it_succeeds() {
    let mut node = Node::new(CgroupVersion::V2);
    let before = node.files();
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    drop(actor);
    // A directory in place of the file cannot be read.
    let max = node.dir.path().join(format!("cpu/{}/cpu.max", node.pods()[0].0));
    let aside = node.dir.path().join("aside");
    fs::rename(&max, &aside).unwrap();
    std::os::unix::fs::symlink(node.dir.path(), &max).unwrap();
    assert!(restore(&node.config(), Duration::ZERO).is_err());
    let (reports, reported) = mpsc::channel();
    let report = move |restored: Result<usize, _>| reports.send(restored).unwrap();
    let restoring = keep_restoring(node.config(), Duration::from_millis(1), report).unwrap();
    assert!(reported.recv().unwrap().is_err());
    fs::rename(&aside, &max).unwrap();
    let restored = reported.iter().find_map(Result::ok);
    assert_eq!(restored, Some(1));
    assert_eq!(node.changed(&before), []);
    drop(restoring);
}

#[test]
fn nothing_is_written_if_the_original_values_cannot_be_stored() {
    let mut node = Node::new(CgroupVersion::V2);
    let before = node.files();
    let mut actor = node.actor();
    node.pass(&mut actor, 0);
    // A directory in place of the temporary file: even root cannot create the file then.
    fs::create_dir_all(node.dir.path().join("state/yields.json.new")).unwrap();
    let report = loop {
        let report = node.pass(&mut actor, 500);
        if report.target.step() == Step::Idle {
            break report;
        }
    };
    assert!(report.writes.errors[0].contains("yields.json.new"), "{report:?}");
    node.pass(&mut actor, 20);
    assert_eq!(node.changed(&before), [], "nor in the next pass");
}

#[test]
fn removed_cgroups_leave_the_checkpoint() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Quota);
    for root in ["cpu", "cpuset"] {
        for (pod, _) in node.pods() {
            fs::remove_dir_all(node.dir.path().join(root).join(pod)).unwrap();
        }
    }
    let (restored, errors) = actor.give_back();
    assert_eq!((restored, errors.len()), (0, 0));
    assert!(!node.dir.path().join("state/yields.json").exists());
}
