//! A directory that looks like a node.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::BurstForecast;
use cgroupfs::Hierarchy;
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::PodIndex;
use kubepods::model::{Container, Pod, Resources};
use kubepods::path::QosClass;
use snapshot::{Bandwidth, ContainerIdentity, ContainerRow, NodeSnapshot, Quota};
use state_dir::ActingMode;
use yielding::rules::ControllerSettings;
use yielding::{Actor, ActorConfig, BurstReport, BurstSettings, Inputs, Resizes};

pub(crate) const UID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// A node of 8 CPUs with one pod of two containers, `app` and `side`, each with a limit of 400m.
/// `app` is throttled in 30 % of its periods, and a burst of half of its quota would end this.
pub(crate) struct Node {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) version: CgroupVersion,
    pub(crate) start: Instant,
    pub(crate) second: u64,
    pub(crate) pod: Pod,
    pub(crate) forecasts: BTreeMap<String, BurstForecast>,
    pub(crate) cpu_qos: &'static str,
    pub(crate) resizes: Resizes,
}

impl Node {
    pub(crate) fn new(version: CgroupVersion) -> Self {
        let mut node = Self::of(version, &["app", "side"]);
        node.forecasts.remove("side");
        node
    }

    /// As [`Self::new`], with other containers, all as `app`.
    pub(crate) fn of(version: CgroupVersion, names: &[&str]) -> Self {
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
            containers: names.iter().map(|name| container(name)).collect(),
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
            forecasts: names.iter().map(|&name| (name.to_owned(), good.clone())).collect(),
            cpu_qos: "",
            resizes: Resizes::default(),
        };
        let containers = names.iter().map(|name| (path(name), 40_000));
        let of_pod = 100_000 * names.len() as u64;
        for (path, quota) in containers.chain([(pod_path(), of_pod)]) {
            node.quota(&path, quota);
            node.file(&node.burst_file(&path), "0\n");
        }
        for name in ["online", "possible"] {
            node.file(&format!("sys/devices/system/cpu/{name}"), "0-7\n");
        }
        node
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.dir.path().join(path)).unwrap().trim().to_owned();
        // A plain file keeps the end of a longer value, which the kernel does not.
        if text.starts_with('0') { "0".to_owned() } else { text }
    }

    pub(crate) fn burst_file(&self, path: &str) -> String {
        match self.version {
            CgroupVersion::V1 => format!("cpu/{path}/cpu.cfs_burst_us"),
            CgroupVersion::V2 => format!("cpu/{path}/cpu.max.burst"),
        }
    }

    pub(crate) fn quota(&self, path: &str, quota: u64) {
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
    pub(crate) fn bursts(&self) -> [String; 3] {
        [pod_path(), path("app"), path("side")].map(|path| self.read(&self.burst_file(&path)))
    }

    /// Quotas of the pod, `app` and `side`, microseconds.
    pub(crate) fn quotas(&self) -> [u64; 3] {
        let file = match self.version {
            CgroupVersion::V1 => "cpu.cfs_quota_us",
            CgroupVersion::V2 => "cpu.max",
        };
        [pod_path(), path("app"), path("side")].map(|path| {
            let text = self.read(&format!("cpu/{path}/{file}"));
            text.split(' ').next().unwrap().parse().unwrap()
        })
    }

    pub(crate) fn config(&self) -> ActorConfig {
        let path = |name| self.dir.path().join(name);
        ActorConfig {
            best_effort: ActingMode::Off,
            burst: ActingMode::Enforce,
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
            settings: ControllerSettings::default(),
            burst_settings: BurstSettings::default(),
            reserved: CpuSet::default(),
            resizes: self.resizes.clone(),
        }
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::new(self.config(), self.start)
    }

    pub(crate) fn pass(&mut self, actor: &mut Actor) -> BurstReport {
        self.pass_with(actor, false)
    }

    /// One second later.
    pub(crate) fn pass_with(&mut self, actor: &mut Actor, draining: bool) -> BurstReport {
        self.second += 1;
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
            forecasts: forecasts.map(|(name, one)| (name.as_str().into(), one.clone())).collect(),
            draining,
            ..Inputs::default()
        };
        actor.pass(now, &inputs).burst.unwrap()
    }

    pub(crate) fn row(&self, name: &str) -> ContainerRow {
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
        ContainerRow {
            identity: Arc::new(identity),
            live: true,
            cgroup: Some(path(name).into()),
            bandwidth: Some(Bandwidth { quota: Quota::Usec(40_000), period_usec: 100_000 }),
            ..ContainerRow::default()
        }
    }

    pub(crate) fn annotate(&mut self, json: &str) {
        self.pod.burst = Some(json.into());
    }

    /// Truncates the values, as the kernel does.
    pub(crate) fn normalize(&self) {
        for path in [pod_path(), path("app"), path("side")] {
            self.file(&self.burst_file(&path), "0\n");
        }
    }
}

pub(crate) fn id(name: &str) -> String {
    format!("{name:c<64}").replace(['p', 's', 'i'], "e")
}

pub(crate) fn pod_path() -> String {
    format!("kubepods/burstable/pod{UID}")
}

pub(crate) fn path(name: &str) -> String {
    format!("{}/{}", pod_path(), id(name))
}
