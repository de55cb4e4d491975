//! A directory that looks like a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroupfs::Hierarchy;
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::PodIndex;
use kubepods::model::{Pod, Resize, Resources};
use kubepods::path::QosClass;
use snapshot::{
    CgroupKind, CgroupRow, ContainerIdentity, ContainerRow, FeatureState, InterferenceRow, Losses,
    NodeSnapshot, NodeWaits, PodIdentity, TraceMode, TraceRow,
};
use state_dir::ActingMode;
use yielding::rules::{ControllerSettings, Step};
use yielding::{Actor, ActorConfig, BestEffortReport, BurstSettings, Inputs, Resizes};

pub(crate) const BATCH: &str = "aaaaaaaa-0000-4000-8000-000000000001";
pub(crate) const SPARK: &str = "aaaaaaaa-0000-4000-8000-000000000002";
pub(crate) const CART: &str = "aaaaaaaa-0000-4000-8000-000000000003";
const DONE: &str = "aaaaaaaa-0000-4000-8000-000000000004";

/// A node of 8 CPUs with a best-effort pod, a batch pod by priority with a quota, and a service.
pub(crate) struct Node {
    pub(crate) dir: tempfile::TempDir,
    version: CgroupVersion,
    pub(crate) start: Instant,
    second: u64,
    waited_ms: u64,
    /// CPU time that the batch pod uses per second.
    pub(crate) uses_ms: u64,
    used_ms: u64,
    /// Namespace of the pod that is batch by its priority.
    pub(crate) spark_namespace: &'static str,
    /// Resize of the pod that is batch by its priority.
    pub(crate) resize: Option<Resize>,
    /// Whether waits are traced; if not, all CPUs are busy.
    pub(crate) traced: bool,
    /// Whether the pods have cgroups.
    pub(crate) present: bool,
}

impl Node {
    pub(crate) fn new(version: CgroupVersion) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Self {
            dir,
            version,
            start: Instant::now(),
            second: 0,
            waited_ms: 0,
            uses_ms: 0,
            used_ms: 0,
            spark_namespace: "n",
            resize: None,
            traced: true,
            present: true,
        };
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

    pub(crate) fn pods(&self) -> [(String, QosClass); 3] {
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

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join(path)).unwrap().trim().to_owned()
    }

    pub(crate) fn config(&self) -> ActorConfig {
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
            best_effort: ActingMode::Enforce,
            burst: ActingMode::Off,
            hierarchy,
            proc_root: path("proc"),
            sys_root: path("sys"),
            state_dir: path("state"),
            settings: ControllerSettings::default(),
            burst_settings: BurstSettings::default(),
            reserved: CpuSet::default(),
            resizes: Resizes::default(),
        }
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::new(self.config(), self.start)
    }

    fn index(&self) -> PodIndex {
        let pod = |name: &str, uid: &str, qos_class, priority| {
            let cpu_request_millis = (uid == CART).then_some(1000);
            let namespace = if uid == SPARK { self.spark_namespace } else { "n" };
            Arc::new(Pod {
                namespace: namespace.into(),
                name: name.into(),
                uid: uid.into(),
                qos_class: Some(qos_class),
                priority,
                resize: self.resize.filter(|_| uid == SPARK),
                resources: Resources { cpu_request_millis, ..Resources::default() },
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
    pub(crate) fn pass(&mut self, actor: &mut Actor, waited_ms: u64) -> BestEffortReport {
        self.pass_with(actor, waited_ms, false)
    }

    pub(crate) fn pass_with(
        &mut self,
        actor: &mut Actor,
        waited_ms: u64,
        draining: bool,
    ) -> BestEffortReport {
        self.second += 1;
        self.waited_ms += waited_ms;
        self.used_ms += self.uses_ms;
        let now = self.start + Duration::from_secs(self.second);
        let row = |path: String, kind| CgroupRow { inode: 0, path: path.into(), kind };
        let busy_ms = if self.traced { 0 } else { self.second * 8_000 };
        self.file("cpu/cpuacct.usage", &format!("{}\n", busy_ms * 1_000_000));
        self.file("cpu/cpu.stat", &format!("usage_usec {}\n", busy_ms * 1000));
        let mut paths = self.pods().map(|(path, _)| path).to_vec();
        paths.retain(|_| self.present);
        let pods = paths.iter().map(|path| row(path.clone(), CgroupKind::Pod));
        let containers = paths.iter().map(|path| row(container(path), CgroupKind::Pending));
        let tops = ["kubepods", "kubepods/besteffort", "kubepods/burstable"]
            .map(|path| row(path.to_owned(), CgroupKind::AbovePods));
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
        let off = FeatureState { feature: "sched_trace", enabled: false, reason: "off".into() };
        let waits = match self.traced {
            true => NodeWaits {
                interference: vec![interference],
                trace: Some(trace),
                ..NodeWaits::default()
            },
            false => NodeWaits { feature: Some(off), ..NodeWaits::default() },
        };
        let snapshot = NodeSnapshot {
            read_at: Some(now),
            cgroups: pods.chain(containers).chain(tops).collect(),
            waits: Arc::new(waits),
            containers: vec![self.row(0, "batch", self.used_ms), self.row(1, "spark", 0)],
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

    fn row(&self, pod: usize, name: &str, used_ms: u64) -> ContainerRow {
        let identity = ContainerIdentity {
            labels: name.into(),
            namespace: "n".into(),
            pod: name.into(),
            ..ContainerIdentity::default()
        };
        ContainerRow {
            identity: Arc::new(identity),
            live: true,
            cgroup: Some(container(&self.pods()[pod].0).into()),
            usage_ns: Some(used_ms * 1_000_000),
            ..ContainerRow::default()
        }
    }

    /// Passes with harm until the target includes `step`.
    pub(crate) fn reach(&mut self, actor: &mut Actor, step: Step) -> BestEffortReport {
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
    pub(crate) fn files(&self) -> Vec<(PathBuf, String)> {
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

    pub(crate) fn changed(&self, before: &[(PathBuf, String)]) -> Vec<(String, String)> {
        let names = |path: &Path| path.strip_prefix(self.dir.path()).unwrap().display().to_string();
        let files = self.files();
        let pairs = files.iter().zip(before).filter(|(now, then)| now != then);
        pairs.map(|(now, _)| (names(&now.0), now.1.clone())).collect()
    }
}

pub(crate) fn container(pod: &str) -> String {
    format!("{pod}/{}", "c".repeat(64))
}
