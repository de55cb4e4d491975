//! The actor on a directory that looks like a node: steps, their restoration, crashes after each
//! step, other writers. `tests/it/kernel/yielding.rs` repeats the essentials on real cgroups.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroupfs::Hierarchy;
use colocation::{Settings, Step};
use kernel_text::CgroupVersion;
use kubepods::PodIndex;
use kubepods::model::Pod;
use kubepods::path::QosClass;
use snapshot::{
    CgroupKind, CgroupRow, InterferenceRow, Losses, NodeSnapshot, NodeWaits, PodIdentity,
    TraceMode, TraceRow,
};
use yielding::{
    Actor, ActorConfig, BestEffortReport, BurstSettings, Inputs, Kind, Mode, Resizes, Switch,
    restore, take_lock,
};

const BATCH: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const SPARK: &str = "aaaaaaaa-0000-4000-8000-000000000002";
const CART: &str = "aaaaaaaa-0000-4000-8000-000000000003";
const DONE: &str = "aaaaaaaa-0000-4000-8000-000000000004";

/// A node of 8 CPUs with a best-effort pod, a batch pod by priority with a quota, and a service.
struct Node {
    dir: tempfile::TempDir,
    version: CgroupVersion,
    start: Instant,
    second: u64,
    waited_ms: u64,
}

impl Node {
    fn new(version: CgroupVersion) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Self { dir, version, start: Instant::now(), second: 0, waited_ms: 0 };
        for (path, qos) in node.pods() {
            node.pod(&path, qos);
        }
        for name in ["online", "possible"] {
            node.file(&format!("sys/devices/system/cpu/{name}"), "0-7\n");
        }
        node.file("cpu/cpuacct.usage", "0\n");
        node.file("cpu/cpu.stat", "usage_usec 0\n");
        node
    }

    fn pods(&self) -> [(String, QosClass); 3] {
        [
            (format!("kubepods/besteffort/pod{BATCH}"), QosClass::BestEffort),
            (format!("kubepods/burstable/pod{SPARK}"), QosClass::Burstable),
            (format!("kubepods/burstable/pod{CART}"), QosClass::Burstable),
        ]
    }

    fn pod(&self, path: &str, qos: QosClass) {
        // As long as the kernel's default: a write to a plain file does not truncate it.
        let weight = match (self.version, qos) {
            (CgroupVersion::V1, QosClass::BestEffort) => 2002,
            (CgroupVersion::V1, _) => 5120,
            (CgroupVersion::V2, QosClass::BestEffort) => 101,
            (CgroupVersion::V2, _) => 512,
        };
        for level in [path.rsplit_once('/').unwrap().0.to_owned(), path.to_owned()] {
            self.file(&format!("cpu/{level}/cpu.idle"), "0\n");
            match self.version {
                CgroupVersion::V1 => {
                    self.file(&format!("cpu/{level}/cpu.shares"), &format!("{weight}\n"));
                    self.file(&format!("cpu/{level}/cpu.cfs_quota_us"), "-1\n");
                    self.file(&format!("cpu/{level}/cpu.cfs_period_us"), "100000\n");
                }
                CgroupVersion::V2 => {
                    self.file(&format!("cpu/{level}/cpu.weight"), &format!("{weight}\n"));
                    self.file(&format!("cpu/{level}/cpu.max"), "max 100000\n");
                }
            }
        }
        self.file(&format!("cpuset/{}/cpuset.cpus", container(path)), "0-7\n");
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn config(&self) -> ActorConfig {
        let path = |name| self.dir.path().join(name);
        let hierarchy = Hierarchy {
            version: self.version,
            hybrid: false,
            cpu: path("cpu"),
            cpuacct: Some(path("cpu")),
            cpuset: Some(path("cpuset")),
            memory: None,
        };
        ActorConfig {
            best_effort: Switch::Enforce,
            burst: Switch::Off,
            hierarchy,
            proc_root: path("proc"),
            sys_root: path("sys"),
            state_dir: path("state"),
            settings: Settings::default(),
            burst_settings: BurstSettings::default(),
            reserved_cores: 0.0,
            resizes: Resizes::default(),
        }
    }

    fn actor(&self) -> Actor {
        Actor::new(self.config(), self.start)
    }

    fn index(&self) -> PodIndex {
        let pod = |name: &str, uid: &str, qos_class, priority| {
            Arc::new(Pod {
                namespace: "n".into(),
                name: name.into(),
                uid: uid.into(),
                qos_class: Some(qos_class),
                priority,
                ..Pod::default()
            })
        };
        let pods = vec![
            pod("batch", BATCH, QosClass::BestEffort, None),
            pod("spark", SPARK, QosClass::Burstable, Some(5500)),
            pod("cart", CART, QosClass::Burstable, Some(9000)),
            // A pod that has ended: it has no cgroup.
            pod("done", DONE, QosClass::BestEffort, None),
        ];
        PodIndex::build(&PodIndex::default(), pods, [])
    }

    /// One second later, in which the service waited `waited_ms` for the batch pod.
    fn pass(&mut self, actor: &mut Actor, waited_ms: u64) -> BestEffortReport {
        self.pass_with(actor, waited_ms, false)
    }

    fn pass_with(&mut self, actor: &mut Actor, waited_ms: u64, draining: bool) -> BestEffortReport {
        self.second += 1;
        self.waited_ms += waited_ms;
        let now = self.start + Duration::from_secs(self.second);
        let row = |path: String, kind| CgroupRow { inode: 0, path: path.into(), kind };
        let paths = self.pods().map(|(path, _)| path);
        let pods = paths.iter().map(|path| row(path.clone(), CgroupKind::Pod));
        let containers = paths.iter().map(|path| row(container(path), CgroupKind::Pending));
        let tops = ["kubepods", "kubepods/besteffort", "kubepods/burstable"]
            .map(|path| row(path.to_owned(), CgroupKind::Top));
        let victim =
            PodIdentity { namespace: "n".into(), pod: "cart".into(), ..Default::default() };
        let interference = InterferenceRow {
            victim: Arc::new(victim),
            aggressor_namespace: "n".into(),
            aggressor_pod: "batch".into(),
            wait_ns: self.waited_ms * 1_000_000,
        };
        let trace = TraceRow {
            mode: TraceMode::Continuous,
            run_ns: 0,
            switches: 0,
            losses: Losses::default(),
        };
        let waits = NodeWaits {
            interference: vec![interference],
            trace: Some(trace),
            ..NodeWaits::default()
        };
        let snapshot = NodeSnapshot {
            read_at: Some(now),
            cgroups: pods.chain(containers).chain(tops).collect(),
            waits: Arc::new(waits),
            ..NodeSnapshot::default()
        };
        let inputs = Inputs {
            snapshot: Arc::new(snapshot),
            pods: Arc::new(self.index()),
            draining,
            ..Inputs::default()
        };
        actor.pass(now, &inputs).best_effort.unwrap()
    }

    /// Passes with harm until the target includes `step`.
    fn reach(&mut self, actor: &mut Actor, step: Step) -> BestEffortReport {
        loop {
            let report = self.pass(actor, 500);
            assert_eq!(report.writes.errors, Vec::<String>::new());
            if report.target.step() >= step {
                return report;
            }
            assert!(self.second < 1000, "{report:?}");
        }
    }

    /// Contents of all cgroup files.
    fn files(&self) -> Vec<(PathBuf, String)> {
        let mut files = Vec::new();
        let mut left = vec![self.dir.path().join("cpu"), self.dir.path().join("cpuset")];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    left.push(entry);
                } else {
                    let mut text = fs::read_to_string(&entry).unwrap().trim().to_owned();
                    // A plain file keeps the end of a longer value, which the kernel does not.
                    for (file, all) in [("cpu.cfs_quota_us", "-1"), ("cpu.max", "max 100000")] {
                        if entry.ends_with(file) && text.starts_with(all) {
                            text.truncate(all.len());
                        }
                    }
                    files.push((entry, text));
                }
            }
        }
        files.sort();
        files
    }

    fn changed(&self, before: &[(PathBuf, String)]) -> Vec<(String, String)> {
        let names = |path: &Path| path.strip_prefix(self.dir.path()).unwrap().display().to_string();
        let files = self.files();
        let pairs = files.iter().zip(before).filter(|(now, then)| now != then);
        pairs.map(|(now, _)| (names(&now.0), now.1.clone())).collect()
    }
}

fn container(pod: &str) -> String {
    format!("{pod}/{}", "c".repeat(64))
}

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
        assert_eq!(report.writes.written, [(Kind::Cpus, 2)].into());
        let cpus = |path: &str| (format!("cpuset/{}/cpuset.cpus", container(path)), "0-3".into());
        let fewer = [idle.to_vec(), vec![cpus(&batch), cpus(&spark)]].concat();
        assert_eq!(node.changed(&before), fewer);
        let report = node.reach(&mut actor, Step::Quota);
        // On v1 a Burstable pod keeps its quota: its containers could not start again.
        let (file, value, pods) = match version {
            CgroupVersion::V1 => ("cpu.cfs_quota_us", "50000", &[&batch][..]),
            CgroupVersion::V2 => ("cpu.max", "50000 100000", &[&batch, &spark][..]),
        };
        assert_eq!(report.writes.written, [(Kind::Quota, pods.len() as u64)].into());
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
            assert_eq!(report.mode, Mode::Observing("a drain is requested".to_owned()));
            assert_eq!(node.changed(&before), [], "drain at {step:?}");
            assert!(take_lock(&node.config().state_dir).is_ok(), "the lock is released");
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
                if !report.writes.written.is_empty() || report.exhausted {
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
fn a_container_confined_to_other_cpus_keeps_at_least_two() {
    let mut node = Node::new(CgroupVersion::V2);
    let cpus = format!("cpuset/{}/cpuset.cpus", container(&node.pods()[0].0));
    // Step 2 keeps the CPUs 0 to 3.
    node.file(&cpus, "3-7\n");
    let mut actor = node.actor();
    let report = node.reach(&mut actor, Step::FewerCpus);
    assert_eq!(report.writes.written, [(Kind::Cpus, 1)].into(), "only the other pod");
    assert_eq!(fs::read_to_string(node.dir.path().join(&cpus)).unwrap().trim(), "3-7");
}

#[test]
fn observing_decides_and_writes_nothing() {
    let mut node = Node::new(CgroupVersion::V2);
    let before = node.files();
    let mut actor =
        Actor::new(ActorConfig { best_effort: Switch::Observe, ..node.config() }, node.start);
    let report = node.reach(&mut actor, Step::Quota);
    assert_eq!(report.mode, Mode::Observing("--best-effort=observe".to_owned()));
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
        // As the kernel does when cpu.idle is cleared; here before, because nobody else does it.
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

#[test]
fn a_writer_that_insists_makes_the_actor_observe() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.reach(&mut actor, Step::Idle);
    let idle = format!("cpu/{}/cpu.idle", node.pods()[0].0);
    let modes: Vec<Mode> = (0..8)
        .map(|_| {
            node.file(&idle, "0\n");
            node.pass(&mut actor, 20).mode
        })
        .collect();
    assert_eq!(modes[5], Mode::Enforcing);
    assert_eq!(modes[6], Mode::Observing("another agent writes the same cgroups".to_owned()));
    assert_eq!(fs::read_to_string(node.dir.path().join(&idle)).unwrap().trim(), "0");
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
fn a_second_agent_only_observes() {
    let mut node = Node::new(CgroupVersion::V2);
    let _first = take_lock(&node.config().state_dir).unwrap();
    let before = node.files();
    let mut actor = node.actor();
    let report = node.reach(&mut actor, Step::Quota);
    assert!(matches!(&report.mode, Mode::Observing(why) if why.contains("locked")), "{report:?}");
    assert_eq!(node.changed(&before), []);
    assert!(restore(&node.config(), Duration::ZERO).is_err(), "the lock is held");
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
