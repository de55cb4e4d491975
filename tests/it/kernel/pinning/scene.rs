//! Pods of all classes on a tree of real cgroups, and a pinner for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel_text::CpuSet;
use kubepods::PodIndex;
use kubepods::model::{Container, Phase, Pod, Resources};
use pinning::{
    DrainConfig, NodeConfig, PassReport, Pinner, PinnerConfig, SETTLED_AFTER, Scope, Trace,
    to_current,
};
use placement::{Class, Holding, PlacementSettings, Profiles, Step, Uid};
use state_dir::PinningCheckpoint;

use crate::support::{Cgroup, Qos, RealTree};

/// A pod: its class, and the number of requested CPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodRequest {
    pub(super) class: Class,
    pub(super) cpus: u64,
}

/// A tree with one pod per request, in this order of arrival.
pub(super) struct Scene {
    pub(super) state: tempfile::TempDir,
    pub(super) pods: Vec<(Uid, Cgroup)>,
    pub(super) tree: RealTree,
    requests: Vec<PodRequest>,
}

/// An LSE, an LS and a BE pod, and an LSR pod if there are enough CPUs: half of this machine stays
/// shared.
pub(super) fn all_classes() -> Vec<PodRequest> {
    let request = |class, cpus| PodRequest { class, cpus };
    match online().len() {
        0..4 => {
            vec![request(Class::Share, 0), request(Class::BestEffort, 0), request(Class::Lse, 1)]
        }
        _ => vec![
            request(Class::Share, 0),
            request(Class::BestEffort, 0),
            request(Class::Lse, 2),
            request(Class::Lsr, 2),
        ],
    }
}

pub(super) fn online() -> CpuSet {
    let online = cgroupfs::node::cpu_list(Path::new("/sys"), "online").unwrap();
    assert!(online.len() >= 2, "cannot test pinning on one CPU");
    online
}

impl Scene {
    pub(super) fn new(requests: &[PodRequest]) -> Self {
        let tree = RealTree::new();
        let pods = (0..requests.len()).map(|at| {
            let uid = uid(at);
            let pod = tree.pod(Qos::Burstable, &uid);
            pod.child(&container_id(at));
            (uid, pod)
        });
        let pods = pods.collect();
        let state = tempfile::tempdir().unwrap();
        fs::write(
            state.path().join("cpu_manager_state"),
            r#"{"policyName":"none","defaultCpuSet":""}"#,
        )
        .unwrap();
        Self { pods, tree, state, requests: requests.to_vec() }
    }

    /// The pod's only container.
    pub(super) fn container(&self, at: usize) -> Cgroup {
        self.pods[at].1.existing_child(&container_id(at))
    }

    pub(super) fn request(&self, at: usize) -> PodRequest {
        self.requests[at]
    }

    pub(super) fn class(&self, uid: &str) -> Class {
        self.requests[self.pods.iter().position(|(other, _)| **other == *uid).unwrap()].class
    }

    pub(super) fn index(&self) -> PodIndex {
        index(&self.requests)
    }

    pub(super) fn config(&self, enforce: bool) -> PinnerConfig {
        config(self.tree.kubepods().path(), self.state.path(), enforce)
    }

    pub(super) fn drain_config(&self) -> DrainConfig {
        DrainConfig { node: self.config(true).node, scope: Scope::Written }
    }

    pub(super) fn pinner(&self, enforce: bool) -> Pinner {
        Pinner::new(self.config(enforce)).unwrap()
    }

    /// Changes the pod's request.
    pub(super) fn change(&mut self, at: usize, request: PodRequest) {
        self.requests[at] = request;
    }

    /// Runs one pass and checks the invariant after each step, including for earlier grants.
    pub(super) fn pass(&self, pinner: &mut Pinner) -> PassReport {
        let mut granted = Granted::before(self);
        let report =
            pinner.pass(&self.index(), &CpuSet::new(), &mut |trace| granted.follow(self, trace));
        let failed: Vec<_> = report.operations.iter().filter(|(_, held, _)| !held).collect();
        assert!(failed.is_empty(), "the kernel refused: {failed:?} {}", report.status);
        report
    }

    pub(super) fn cgroups(&self) -> impl Iterator<Item = (&Uid, Cgroup)> {
        self.pods
            .iter()
            .enumerate()
            .flat_map(|(at, (uid, pod))| [(uid, pod.clone()), (uid, self.container(at))])
    }

    /// `cpuset.cpus` of every cgroup of the pods.
    pub(super) fn bytes(&self) -> BTreeMap<PathBuf, String> {
        self.cgroups()
            .map(|(_, cgroup)| (cgroup.path().to_owned(), cgroup.read("cpuset", "cpuset.cpus")))
            .collect()
    }

    pub(super) fn effective(&self, at: usize) -> CpuSet {
        effective(&self.container(at))
    }

    /// Effective CPUs of each pod.
    pub(super) fn all_effective(&self) -> Vec<String> {
        (0..self.pods.len()).map(|at| self.effective(at).to_string()).collect()
    }
}

/// Grants at this point of the steps, with the check that no other pod runs on them.
struct Granted(BTreeMap<Uid, Holding>);

impl Granted {
    fn before(scene: &Scene) -> Self {
        // No checkpoint, or one that a test has torn: nothing is known to be granted.
        let checkpoint = PinningCheckpoint::read(&scene.config(true).node.state_dir).ok().flatten();
        Self(
            checkpoint.map(|checkpoint| to_current(&checkpoint.committed).held).unwrap_or_default(),
        )
    }

    fn follow(&mut self, scene: &Scene, trace: Trace<'_>) {
        match trace {
            Trace::Done(Step::Grant { uid, holding }) => {
                drop(self.0.insert(uid.clone(), holding.clone()));
            }
            Trace::Done(Step::Release { uid, cpus }) => {
                if let Some(held) = self.0.get_mut(uid) {
                    held.cpus = held.cpus.difference(cpus);
                }
            }
            _ => {}
        }
        for (owner, held) in &self.0 {
            for (uid, cgroup) in scene.cgroups().filter(|(uid, _)| *uid != owner) {
                let may = scene.class(uid).may_share_with(held.class);
                let there = effective(&cgroup);
                assert!(
                    may || there.is_disjoint(&held.cpus),
                    "{uid} has {there} of {owner}'s {} at {trace:?}",
                    held.cpus
                );
            }
        }
    }
}

pub(super) fn effective(cgroup: &Cgroup) -> CpuSet {
    let v2 = cgroup.dir("cpuset").join("cpuset.cpus.effective").exists();
    let file = if v2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
    cgroup.read("cpuset", file).parse().unwrap()
}

pub(super) fn config(kubepods: &Path, state: &Path, enforce: bool) -> PinnerConfig {
    PinnerConfig {
        enforce,
        node: NodeConfig {
            hierarchy: cgroupfs::Hierarchy::detect(Path::new("/sys/fs/cgroup")).unwrap(),
            kubepods: vec![kubepods.to_str().unwrap().to_owned()],
            proc_root: "/proc".into(),
            sys_root: "/sys".into(),
            state_dir: state.join("state"),
            cpu_manager_state: state.join("cpu_manager_state"),
        },
        owner_namespaces: vec!["kube-system".to_owned()],
        reconcile_interval: Duration::from_secs(30),
        settled_after: SETTLED_AFTER,
        descriptors: 1000,
        reserved: CpuSet::new(),
        settings: PlacementSettings { share_floor: 1, ..PlacementSettings::default() },
        profiles: Profiles::default(),
        admission: None,
    }
}

/// A kubelet's list of these pods.
pub(super) fn index(requests: &[PodRequest]) -> PodIndex {
    let pods = requests.iter().enumerate().map(|(at, request)| {
        let millis = (request.cpus > 0).then_some(request.cpus * 1000);
        let resources = Resources {
            cpu_request_millis: millis,
            cpu_limit_millis: millis,
            ..Resources::default()
        };
        let container = Container { name: "c".into(), resources, ..Container::default() };
        let label = ("koordinator.sh/qosClass".into(), pinning::class_name(request.class).into());
        Pod {
            namespace: if at == 0 { "infra" } else { "test" }.into(),
            name: format!("pod-{at}").into(),
            uid: (&*uid(at)).into(),
            labels: vec![label],
            phase: Phase::Running,
            containers: vec![container],
            ..Pod::default()
        }
    });
    PodIndex::build(&PodIndex::default(), pods.map(Into::into).collect(), [])
}

pub(super) fn uid(at: usize) -> Uid {
    format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0d{at:04}").into()
}

pub(super) fn container_id(at: usize) -> String {
    format!("{at:064x}")
}
