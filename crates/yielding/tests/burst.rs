//! Burst on a directory that looks like a node: choice, resizes, restoration, scaled quotas.
//! `tests/it/kernel/burst.rs` repeats the essentials on real cgroups.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::BurstForecast;
use cgroupfs::Hierarchy;
use colocation::Settings;
use kernel_text::CgroupVersion;
use kubepods::PodIndex;
use kubepods::model::{Container, Pod, Resources};
use kubepods::path::QosClass;
use snapshot::{CfsTotals, ContainerIdentity, ContainerRow, NodeSnapshot};
use yielding::{
    Actor, ActorConfig, BurstChange, BurstReport, BurstSettings, Inputs, Kind, Mode, Switch,
    restore,
};

const UID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// A node of 8 CPUs with one pod of two containers, `app` and `side`, each with a limit of 400m.
/// `app` is throttled in 30 % of its periods, and a burst of half of its quota would end this.
struct Node {
    dir: tempfile::TempDir,
    version: CgroupVersion,
    start: Instant,
    second: u64,
    pod: Pod,
    forecasts: BTreeMap<&'static str, BurstForecast>,
    cpu_qos: &'static str,
    used_share: f64,
    used_ns: u64,
    throttled: u64,
    is_throttled: bool,
}

impl Node {
    fn new(version: CgroupVersion) -> Self {
        let container = |name: &str| Container {
            name: name.into(),
            id: Some(id(name).into()),
            resources: Resources { cpu_limit_millis: Some(400), ..Resources::default() },
            ..Container::default()
        };
        let pod = Pod {
            namespace: "n".into(),
            name: "cart".into(),
            uid: UID.into(),
            qos_class: Some(QosClass::Burstable),
            containers: vec![container("app"), container("side")],
            ..Pod::default()
        };
        let good = BurstForecast {
            throttled_share: Some(0.3),
            mean_use: Some(0.1),
            replayed: vec![(0.0, 0.3), (0.25, 0.2), (0.5, 0.001), (0.75, 0.0)],
        };
        let node = Self {
            dir: tempfile::tempdir().unwrap(),
            version,
            start: Instant::now(),
            second: 0,
            pod,
            forecasts: [("app", good)].into(),
            cpu_qos: "",
            used_share: 0.1,
            used_ns: 0,
            throttled: 0,
            is_throttled: false,
        };
        for (path, quota) in [(pod_path(), 200_000), (path("app"), 40_000), (path("side"), 40_000)]
        {
            node.quota(&path, quota);
            node.file(&node.burst_file(&path), "0\n");
        }
        for name in ["online", "possible"] {
            node.file(&format!("sys/devices/system/cpu/{name}"), "0-7\n");
        }
        node
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.dir.path().join(path)).unwrap().trim().to_owned();
        // A plain file keeps the end of a longer value, which the kernel does not.
        if text.starts_with('0') { "0".to_owned() } else { text }
    }

    fn burst_file(&self, path: &str) -> String {
        match self.version {
            CgroupVersion::V1 => format!("cpu/{path}/cpu.cfs_burst_us"),
            CgroupVersion::V2 => format!("cpu/{path}/cpu.max.burst"),
        }
    }

    fn quota(&self, path: &str, quota: u64) {
        match self.version {
            CgroupVersion::V1 => {
                self.file(&format!("cpu/{path}/cpu.cfs_quota_us"), &format!("{quota}\n"));
                self.file(&format!("cpu/{path}/cpu.cfs_period_us"), "100000\n");
            }
            CgroupVersion::V2 => {
                self.file(&format!("cpu/{path}/cpu.max"), &format!("{quota} 100000\n"));
            }
        }
    }

    /// Bursts of the pod, `app` and `side`.
    fn bursts(&self) -> [String; 3] {
        [pod_path(), path("app"), path("side")].map(|path| self.read(&self.burst_file(&path)))
    }

    /// Quotas of the pod, `app` and `side`, microseconds.
    fn quotas(&self) -> [u64; 3] {
        let file = match self.version {
            CgroupVersion::V1 => "cpu.cfs_quota_us",
            CgroupVersion::V2 => "cpu.max",
        };
        [pod_path(), path("app"), path("side")].map(|path| {
            let text = self.read(&format!("cpu/{path}/{file}"));
            text.split(' ').next().unwrap().parse().unwrap()
        })
    }

    fn config(&self) -> ActorConfig {
        let path = |name| self.dir.path().join(name);
        ActorConfig {
            best_effort: Switch::Off,
            burst: Switch::Enforce,
            hierarchy: Hierarchy {
                version: self.version,
                hybrid: false,
                cpu: path("cpu"),
                cpuacct: Some(path("cpu")),
                cpuset: None,
                memory: None,
            },
            proc_root: path("proc"),
            sys_root: path("sys"),
            state_dir: path("state"),
            settings: Settings::default(),
            burst_settings: BurstSettings { quota_percent: 200, ..BurstSettings::default() },
            reserved_cores: 0.0,
        }
    }

    fn actor(&self) -> Actor {
        Actor::new(self.config(), self.start)
    }

    fn pass(&mut self, actor: &mut Actor) -> BurstReport {
        self.pass_with(actor, false)
    }

    /// One second later.
    fn pass_with(&mut self, actor: &mut Actor, draining: bool) -> BurstReport {
        self.second += 1;
        self.throttled += u64::from(self.is_throttled);
        self.used_ns += (self.used_share * 8e9) as u64;
        self.file("cpu/cpuacct.usage", &format!("{}\n", self.used_ns));
        self.file("cpu/cpu.stat", &format!("usage_usec {}\n", self.used_ns / 1000));
        let now = self.start + Duration::from_secs(self.second);
        let rows = self.pod.containers.iter().map(|container| self.row(&container.name));
        let snapshot = NodeSnapshot {
            read_at: Some(now),
            containers: rows.collect(),
            ..NodeSnapshot::default()
        };
        let forecasts = self.forecasts.iter();
        let pods = vec![Arc::new(self.pod.clone())];
        let inputs = Inputs {
            snapshot: Arc::new(snapshot),
            pods: Arc::new(PodIndex::build(&PodIndex::default(), pods, [])),
            forecasts: forecasts.map(|(&name, one)| (name.into(), one.clone())).collect(),
            draining,
            ..Inputs::default()
        };
        actor.pass(now, &inputs).burst.unwrap()
    }

    fn row(&self, name: &str) -> ContainerRow {
        let identity = ContainerIdentity {
            labels: name.into(),
            namespace: "n".into(),
            pod: "cart".into(),
            container: name.into(),
            uid: UID.into(),
            container_id: id(name),
            cpu_qos: self.cpu_qos.into(),
            ..ContainerIdentity::default()
        };
        let cfs = CfsTotals { throttled_periods: self.throttled, ..CfsTotals::default() };
        ContainerRow {
            identity: Arc::new(identity),
            live: true,
            cgroup: Some(format!("/{}", path(name)).into()),
            quota_usec: Some(40_000),
            period_usec: Some(100_000),
            usage_ns: Some(self.second * 300_000_000),
            cfs: Some(cfs),
            ..ContainerRow::default()
        }
    }

    fn annotate(&mut self, json: &str) {
        self.pod.burst = Some(json.into());
    }
}

fn id(name: &str) -> String {
    format!("{name:c<64}").replace(['p', 's', 'i'], "e")
}

fn pod_path() -> String {
    format!("kubepods/burstable/pod{UID}")
}

fn path(name: &str) -> String {
    format!("{}/{}", pod_path(), id(name))
}

#[test]
fn a_container_that_gains_bursts_and_its_pod_with_it() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let mut actor = node.actor();
        let report = node.pass(&mut actor);
        assert_eq!(node.bursts(), ["20000", "20000", "0"]);
        assert_eq!(report.writes.written, [(Kind::Burst, 2)].into());
        assert_eq!(report.writes.errors, Vec::<String>::new());
        let [(burst, BurstChange::Raised { without, with })] = &report.changes[..] else {
            panic!("{report:?}")
        };
        assert_eq!((&*burst.container, burst.percent, burst.usec), ("app", 50, 0));
        assert_eq!((*without, *with), (0.3, 0.001));
        assert_eq!(report.others, [("not_measured", 1)].into());
        let report = node.pass(&mut actor);
        assert!(report.writes.written.is_empty() && report.changes.is_empty(), "{report:?}");
        assert_eq!(report.containers[0].usec, 20_000);
    }
}

#[test]
fn who_may_not_burst_is_counted_by_reason() {
    type Change = fn(&mut Node);
    let cases: [(Change, &str); 8] = [
        (|node| node.cpu_qos = "LSR", "exclusive"),
        (|node| node.pod.qos_class = Some(QosClass::BestEffort), "best_effort"),
        (|node| node.annotate("{}"), "not_requested"),
        (|node| node.annotate(r#"{"policy":"cfsQuotaBurstOnly"}"#), "not_requested"),
        (|node| node.annotate(r#"{"policy":"always"}"#), "invalid_annotation"),
        (|node| node.forecasts.get_mut("app").unwrap().mean_use = Some(0.9), "busy"),
        (
            |node| node.forecasts.get_mut("app").unwrap().throttled_share = Some(0.0),
            "not_throttled",
        ),
        (|node| node.forecasts.get_mut("app").unwrap().replayed[2..].fill((0.75, 0.29)), "no_gain"),
    ];
    for (change, reason) in cases {
        let mut node = Node::new(CgroupVersion::V2);
        change(&mut node);
        let report = node.pass(&mut node.actor());
        assert!(report.others.contains_key(reason), "{reason}: {report:?}");
        assert_eq!(node.bursts(), ["0", "0", "0"], "{reason}");
    }
}

#[test]
fn the_annotation_lowers_the_burst_and_cannot_raise_it() {
    for (percent, burst) in [(25, "10000"), (1000, "20000")] {
        let mut node = Node::new(CgroupVersion::V2);
        node.annotate(&format!(r#"{{"policy":"cpuBurstOnly","cpuBurstPercent":{percent}}}"#));
        // A quarter is enough to pass the condition of the gain.
        node.forecasts.get_mut("app").unwrap().replayed[1].1 = 0.1;
        node.pass(&mut node.actor());
        assert_eq!(node.bursts()[1], burst, "{percent} %");
    }
}

#[test]
fn a_burst_is_lowered_before_the_limit_shrinks() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let mut actor = node.actor();
        node.pass(&mut actor);
        node.pod.containers[0].resources.cpu_limit_millis = Some(200);
        node.pass(&mut actor);
        assert_eq!(node.bursts(), ["10000", "10000", "0"]);
        assert_eq!(node.quotas()[1], 40_000, "the kubelet has not written yet");
    }
}

#[test]
fn a_burst_that_the_kernel_divided_is_written_again() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    for _ in 0..10 {
        node.pass(&mut actor);
        node.file(&node.burst_file(&path("app")), "20\n");
    }
    let report = node.pass(&mut actor);
    assert_eq!(node.bursts(), ["20000", "20000", "0"]);
    assert_eq!((report.mode, report.writes.repaired), (Mode::Enforcing, 0), "no conflict");
    node.file(&node.burst_file(&path("app")), "20\n");
    actor.give_back();
    assert_eq!(node.bursts(), ["0", "0", "0"]);
}

#[test]
fn a_burst_stays_while_a_changed_limit_has_no_replay() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.pass(&mut actor);
    let forecast = node.forecasts.get_mut("app").unwrap();
    (forecast.throttled_share, forecast.replayed) = (None, Vec::new());
    node.pass(&mut actor);
    assert_eq!(node.bursts()[1], "20000");
}

#[test]
fn a_burst_in_force_ends_only_below_half_of_the_condition() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.pass(&mut actor);
    let without = |node: &mut Node, share| {
        let forecast = node.forecasts.get_mut("app").unwrap();
        // The kernel counts no throttling any more: that is the burst's effect.
        forecast.throttled_share = Some(0.0);
        forecast.replayed = vec![(0.0, share), (0.25, 0.0), (0.5, 0.0), (0.75, 0.0)];
    };
    without(&mut node, 0.006);
    node.pass(&mut actor);
    assert_eq!(node.bursts()[1], "20000");
    without(&mut node, 0.004);
    let report = node.pass(&mut actor);
    assert_eq!(node.bursts(), ["0", "0", "0"]);
    assert_eq!(report.changes[0].1, BurstChange::Ended("not_throttled"));
    assert_eq!(report.writes.restored, 2);
}

#[test]
fn everything_is_as_before_after_stop_crash_drain_and_restore() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        node.annotate(r#"{"policy":"auto"}"#);
        node.is_throttled = true;
        let reach = |node: &mut Node| {
            let mut actor = node.actor();
            (0..4).for_each(|_| drop(node.pass(&mut actor)));
            assert_ne!((node.bursts()[1].as_str(), node.quotas()[1]), ("0", 40_000));
            actor
        };
        let check = |node: &Node, after: &str| {
            assert_eq!(node.bursts(), ["0", "0", "0"], "{after}");
            assert_eq!(node.quotas(), [200_000, 40_000, 40_000], "{after}");
        };
        let (restored, errors) = reach(&mut node).give_back();
        assert!(restored >= 5 && errors.is_empty(), "{restored}, {errors:?}");
        check(&node, "stop");
        node.normalize();
        drop(reach(&mut node));
        assert!(restore(&node.config(), Duration::ZERO).unwrap() >= 5);
        check(&node, "crash and restore");
        node.normalize();
        let mut actor = reach(&mut node);
        let report = node.pass_with(&mut actor, true);
        assert_eq!(report.mode, Mode::Observing("a drain is requested".to_owned()));
        check(&node, "drain");
        assert!(!node.dir.path().join("state/yields.json").exists());
    }
}

impl Node {
    /// Truncates the values, as the kernel does.
    fn normalize(&self) {
        for path in [pod_path(), path("app"), path("side")] {
            self.file(&self.burst_file(&path), "0\n");
        }
    }
}

#[test]
fn observing_decides_and_writes_nothing() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = Actor::new(ActorConfig { burst: Switch::Observe, ..node.config() }, node.start);
    let report = node.pass(&mut actor);
    assert_eq!(report.mode, Mode::Observing("--burst=observe".to_owned()));
    assert_eq!((report.containers.len(), report.containers[0].usec), (1, 20_000));
    assert_eq!(node.bursts(), ["0", "0", "0"]);
    assert!(!node.dir.path().join("state").exists());
}

/// A file of /proc stands for the cgroup's: it rejects 20000 with EINVAL, and accepts 0.
#[test]
fn a_burst_that_the_kernel_rejects_becomes_zero() {
    let mut node = Node::new(CgroupVersion::V2);
    let file = node.dir.path().join(node.burst_file(&path("app")));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/proc/self/oom_score_adj", &file).unwrap();
    fs::write(&file, "0").unwrap();
    let mut actor = node.actor();
    let report = node.pass(&mut actor);
    assert_eq!((report.writes.rejected, report.writes.errors.len()), (1, 0), "{report:?}");
    assert_eq!(node.bursts()[1], "0");
    let report = node.pass(&mut actor);
    assert_eq!((report.writes.rejected, report.writes.repaired), (0, 0), "not tried again at once");
    node.second += 601;
    assert_eq!(node.pass(&mut actor).writes.rejected, 1, "tried again after ten minutes");
}

#[test]
fn an_older_kernel_is_reported() {
    let mut node = Node::new(CgroupVersion::V2);
    let burst_settings = BurstSettings { can_burst: false, ..BurstSettings::default() };
    let mut actor = Actor::new(ActorConfig { burst_settings, ..node.config() }, node.start);
    let report = node.pass(&mut actor);
    assert!(matches!(&report.mode, Mode::Observing(why) if why.contains("5.14")), "{report:?}");
    assert_eq!(node.bursts(), ["0", "0", "0"]);
}

#[test]
fn quotas_grow_while_the_node_is_idle_and_shrink_while_it_is_busy() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        node.annotate(r#"{"policy":"cfsQuotaBurstOnly"}"#);
        node.is_throttled = true;
        let mut actor = node.actor();
        (0..2).for_each(|_| drop(node.pass(&mut actor)));
        assert_eq!(node.quotas(), [216_000, 48_000, 48_000], "after one step");
        (0..20).for_each(|_| drop(node.pass(&mut actor)));
        assert_eq!(node.quotas(), [280_000, 80_000, 80_000], "the highest quota");
        assert_eq!(node.pass(&mut actor).scaled, 2);
        node.used_share = 0.9;
        (0..30).for_each(|_| drop(node.pass(&mut actor)));
        assert_eq!(node.quotas(), [200_000, 40_000, 40_000], "the limits");
    }
}

#[test]
fn quotas_are_not_scaled_without_the_option_or_during_a_resize() {
    let mut node = Node::new(CgroupVersion::V2);
    node.annotate(r#"{"policy":"auto"}"#);
    node.is_throttled = true;
    let mut actor = node.actor();
    (0..2).for_each(|_| drop(node.pass(&mut actor)));
    assert_eq!(node.quotas()[1], 48_000);
    node.pod.containers[0].resources.cpu_limit_millis = Some(300);
    node.pass(&mut actor);
    assert_eq!(node.quotas()[1], 40_000, "the kubelet's value");
    // Its lock.
    drop(actor);
    let burst_settings = BurstSettings::default();
    let mut actor = Actor::new(ActorConfig { burst_settings, ..node.config() }, node.start);
    (0..5).for_each(|_| drop(node.pass(&mut actor)));
    assert_eq!(node.quotas()[2], 40_000);
}
