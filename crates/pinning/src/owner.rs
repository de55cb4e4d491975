//! Who else places containers on this node's CPUs. Two that do overwrite each other, so beside another owner pinning
//! only observes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use kernel_text::CpuSet;
use placement::{Kubelet, Uid};
use pods::model::{ContainerState, Phase, Pod};
use pods::{ExclusiveCpus, PodIndex, path};
use serde::Deserialize;

/// Where the kubelet keeps the state of its CPU manager.
pub const CPU_MANAGER_STATE: &str = "/var/lib/kubelet/cpu_manager_state";

/// Namespaces whose pods may be agents that place containers, unless the operator names others.
pub const OWNER_NAMESPACES: [&str; 2] = ["kube-system", "koordinator-system"];

/// Beginnings of process and image names of agents that place containers on CPUs.
const AGENTS: [&str; 7] =
    ["koordlet", "nri-resource-policy", "cri-resmgr", "katalyst-agent", "crane-agent", "dracpu", "dra-driver-cpu"];
/// NRI policy plugins by the names that they have where the runtime launches them, after two digits and a dash
/// (`10-balloons`, /opt/nri/plugins).
const NRI_POLICIES: [&str; 2] = ["balloons", "topology-aware"];
/// Drivers of dynamic resource allocation that place containers on CPUs (kubernetes-sigs/dra-driver-cpu).
const CPU_DRIVERS: [&str; 1] = ["dra.cpu"];
/// The kernel cuts process names here (`TASK_COMM_LEN` less the NUL).
const COMM_LENGTH: usize = 15;

/// `cpu_manager_state` in the kubelet's root directory (`pkg/kubelet/cm/cpumanager/state`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuManagerState {
    /// `none` or `static`.
    pub policy_name: String,
    /// By pod UID and container name: a CPU list.
    #[serde(default)]
    pub entries: BTreeMap<String, BTreeMap<String, String>>,
}

impl CpuManagerState {
    /// Reads the kubelet's file.
    ///
    /// # Errors
    /// Why it cannot be read, in one line that names it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let failed = |error| format!("{place} cannot be read: {error}");
        let mut file = File::open(path).map_err(failed)?;
        // The kubelet replaces the file; a volume of the file alone goes on showing the one that was there before.
        if file.metadata().map_err(failed)?.nlink() == 0 {
            return Err(format!("{place} was replaced by the kubelet; restart the agent's pod to see the new one"));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| format!("{place}: {error}"))
    }

    /// Containers with CPUs of their own.
    #[must_use]
    pub fn containers(&self) -> usize {
        self.entries.values().map(BTreeMap::len).sum()
    }

    /// What the kubelet gave to containers for themselves, whatever its policy is said to be. A list that cannot be read
    /// keeps its pod among them.
    pub(crate) fn exclusive(&self) -> KubeletsOwn {
        let lists = self.entries.values().flat_map(BTreeMap::values).filter_map(|list| list.parse::<CpuSet>().ok());
        KubeletsOwn {
            pods: self
                .entries
                .iter()
                .filter(|(_, lists)| !lists.is_empty())
                .map(|(uid, _)| Uid::from(&**uid))
                .collect(),
            cpus: lists.fold(CpuSet::new(), |all, cpus| all.union(&cpus)),
        }
    }

    /// Whether the policy gives CPUs away.
    ///
    /// # Errors
    /// A policy that is neither `none` nor `static`.
    pub(crate) fn is_static(policy: &str) -> Result<bool, String> {
        match policy {
            "none" => Ok(false),
            "static" => Ok(true),
            other => Err(format!("the kubelet's CPU manager policy {other:?} is not known")),
        }
    }

    /// What the planner must know of the kubelet.
    ///
    /// # Errors
    /// A policy that is neither `none` nor `static`, or CPUs that are no list.
    pub fn kubelet(&self) -> Result<Kubelet, String> {
        for list in self.entries.values().flat_map(BTreeMap::values) {
            list.parse::<CpuSet>().map_err(|error| format!("cpu_manager_state: {error}"))?;
        }
        let KubeletsOwn { pods, cpus } = self.exclusive();
        Ok(Kubelet { static_policy: Self::is_static(&self.policy_name)?, exclusive: cpus, pods })
    }
}

/// Pods to which the kubelet gave CPUs for themselves. Their cgroups are never written here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KubeletsOwn {
    /// The pods.
    pub(crate) pods: BTreeSet<Uid>,
    /// Their CPUs.
    pub(crate) cpus: CpuSet,
}

impl KubeletsOwn {
    /// Whether the kubelet gave nothing away.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.cpus.is_empty()
    }
}

/// Where other agents are looked for, and whose word counts.
#[derive(Debug, Clone, Copy)]
pub struct OwnerSearch<'a> {
    /// The node's `/proc`.
    pub proc_root: &'a Path,
    /// The kubelet's root directory, with the sockets of its plugins.
    pub kubelet_root: &'a Path,
    /// Namespaces whose pods may be agents that place containers. Anybody may call a process or an image like one.
    pub namespaces: &'a [String],
}

/// The agents other than the kubelet that place containers here: host processes, processes and running containers of pods
/// in the named namespaces, and drivers that allocate CPUs.
#[must_use]
pub fn other_agents(search: &OwnerSearch<'_>, pods: &PodIndex, resources: &ExclusiveCpus) -> Vec<String> {
    let mut found: BTreeSet<String> = processes(search, pods).chain(images(search, pods)).collect();
    found.extend(drivers(search, resources));
    found.into_iter().collect()
}

/// The agent that a process or image of this name is.
fn agent_named(name: &str, cut_at: usize) -> Option<&'static str> {
    let is_launched =
        name.len() > 3 && name.as_bytes()[..2].iter().all(u8::is_ascii_digit) && name.as_bytes()[2] == b'-';
    let (name, launched) = if is_launched { (&name[3..], &NRI_POLICIES[..]) } else { (name, &[][..]) };
    let cut_at = if is_launched { cut_at.saturating_sub(3) } else { cut_at };
    let is = |agent: &&&'static str| name.starts_with(&agent[..agent.len().min(cut_at)]);
    AGENTS.iter().chain(launched).find(is).copied()
}

fn processes<'a>(search: &'a OwnerSearch<'_>, pods: &'a PodIndex) -> impl Iterator<Item = String> + 'a {
    let all = procfs::process::all_processes_with_root(search.proc_root).into_iter().flatten();
    // One that has ended meanwhile has no name or no cgroup.
    all.filter_map(move |process| {
        let process = process.ok()?;
        let agent = agent_named(&process.stat().ok()?.comm, COMM_LENGTH)?;
        let counts = match process.cgroups() {
            Ok(cgroups) => cgroups.0.iter().all(|cgroup| may_place(&cgroup.pathname, search.namespaces, pods)),
            Err(_) => process.stat().is_ok(),
        };
        counts.then(|| agent.to_owned())
    })
}

/// Whether a process in this cgroup may be an agent: one of the host, or of a pod in a named namespace. A path that leads
/// out of this process's cgroup namespace (`/../../…`) does not show the root, only the pod.
fn may_place(cgroup: &str, namespaces: &[String], pods: &PodIndex) -> bool {
    let mut components = cgroup.split('/');
    match components.clone().find_map(pod_uid) {
        Some(uid) => pods.pod(&uid).is_some_and(|pod| namespaces.iter().any(|name| **name == *pod.namespace)),
        None => !components.any(|name| path::kubepods_root(name).is_some() || name.starts_with("kubepods")),
    }
}

/// The UID in the name of a pod's cgroup: `pod<uid>`, or `…-pod<uid with underscores>.slice`.
fn pod_uid(component: &str) -> Option<String> {
    let slice = component.strip_suffix(".slice").and_then(|name| name.rsplit_once("-pod")).map(|(_, uid)| uid);
    let uid = slice.or_else(|| component.strip_prefix("pod"))?.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_uid.then_some(uid)
}

fn images<'a>(search: &'a OwnerSearch<'_>, pods: &'a PodIndex) -> impl Iterator<Item = String> + 'a {
    let named = |pod: &&std::sync::Arc<Pod>| search.namespaces.iter().any(|name| **name == *pod.namespace);
    let running = pods.pods().iter().filter(move |pod| pod.phase == Phase::Running && named(pod));
    let containers = running.flat_map(|pod| &pod.containers).filter(|c| c.state == ContainerState::Running);
    containers.filter_map(|container| {
        let last = container.image.rsplit('/').next()?;
        agent_named(last, usize::MAX).map(str::to_owned)
    })
}

/// Drivers of dynamic resource allocation that place containers on CPUs, by what the kubelet says of claims and by their
/// sockets in the kubelet's own directory.
fn drivers(search: &OwnerSearch<'_>, resources: &ExclusiveCpus) -> impl Iterator<Item = String> {
    CPU_DRIVERS.into_iter().filter_map(|driver| {
        let registered = search.kubelet_root.join(format!("plugins_registry/{driver}-reg.sock"));
        let own = sockets_in(&search.kubelet_root.join("plugins").join(driver));
        match own.chain([registered].into_iter().filter(|path| is_socket(path))).next() {
            Some(socket) => Some(format!("the DRA driver {driver} ({})", socket.display())),
            None if resources.drivers.contains(driver) => Some(format!("the DRA driver {driver}")),
            None => None,
        }
    })
}

fn sockets_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_socket(path))
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_that_the_kubelet_has_replaced_is_not_believed() {
        use std::os::fd::AsRawFd as _;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cpu_manager_state");
        std::fs::write(&path, r#"{"policyName":"none"}"#).unwrap();
        assert_eq!(CpuManagerState::read(&path).unwrap().policy_name, "none");
        // As a volume of the file shows it: the same inode, which has no name any more.
        let mounted = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let error = CpuManagerState::read(Path::new(&format!("/proc/self/fd/{}", mounted.as_raw_fd()))).unwrap_err();
        assert!(error.contains("replaced") && error.contains("restart the agent's pod"), "{error}");
    }

    fn kubelet(json: &str) -> Result<Kubelet, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu_manager_state");
        std::fs::write(&path, json).unwrap();
        CpuManagerState::read(&path)?.kubelet()
    }

    #[test]
    fn the_policy_and_what_it_gave_away_are_read_from_the_kubelets_file() {
        // kubelet 1.32, policies none and static.
        let none = kubelet(r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#).unwrap();
        assert_eq!(none, Kubelet::default());
        let json = r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"a":"2","b":"4-5"}},"checksum":1}"#;
        let exclusive = "2,4-5".parse().unwrap();
        assert_eq!(kubelet(json).unwrap(), Kubelet { static_policy: true, exclusive, pods: ["u".into()].into() });
    }

    #[test]
    fn what_is_unknown_is_an_error_and_not_the_policy_none() {
        assert!(kubelet(r#"{"policyName":"dynamic"}"#).unwrap_err().contains("dynamic"));
        assert!(kubelet(r#"{"policyName":"static","entries":{"u":{"a":"x"}}}"#).is_err());
        assert!(kubelet("").is_err());
        assert!(CpuManagerState::read(Path::new("/nowhere/state")).unwrap_err().contains("/nowhere/state"));
    }

    /// A node with a process of this name in this cgroup, and its pods.
    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn process(&self, comm: &str, cgroup: &str) {
            let directory = self.0.path().join("proc/7");
            std::fs::create_dir_all(&directory).unwrap();
            let stat = format!("7 ({comm}) S 1 7 7 0 -1 0 {}", "0 ".repeat(44));
            std::fs::write(directory.join("stat"), stat).unwrap();
            std::fs::write(directory.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        }

        fn others(&self, pods: &[Pod], resources: &ExclusiveCpus) -> Vec<String> {
            let namespaces = ["kube-system".to_owned()];
            let (proc_root, kubelet_root) = (self.0.path().join("proc"), self.0.path().join("kubelet"));
            let search = OwnerSearch { proc_root: &proc_root, kubelet_root: &kubelet_root, namespaces: &namespaces };
            let index = PodIndex::build(&PodIndex::default(), pods.iter().cloned().map(Into::into).collect(), []);
            other_agents(&search, &index, resources)
        }
    }

    const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0d0001";

    fn pod(namespace: &str, image: &str, state: ContainerState) -> Pod {
        let container = pods::model::Container { image: image.into(), state, ..Default::default() };
        let (namespace, phase) = (namespace.into(), Phase::Running);
        Pod { namespace, phase, uid: UID.into(), containers: vec![container], ..Default::default() }
    }

    #[test]
    fn a_process_counts_on_the_host_and_in_pods_of_named_namespaces() {
        let none = ExclusiveCpus::default();
        let systemd = format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-a.scope", UID.replace('-', "_"));
        let inside = [
            format!("/kubepods/burstable/pod{UID}/a"),
            systemd.clone(),
            systemd.replace("/kubepods.slice", "/../.."),
            format!("/../../burstable/pod{UID}/a"),
            format!("/docker/x/kubelet/kubepods/pod{UID}/a"),
        ];
        for cgroup in &inside {
            let node = Node::new();
            node.process("koordlet", cgroup);
            assert!(node.others(&[], &none).is_empty(), "{cgroup}: of no known pod");
            assert!(node.others(&[pod("shop", "", ContainerState::Running)], &none).is_empty(), "{cgroup}: a tenant's");
            let system = pod("kube-system", "", ContainerState::Running);
            assert_eq!(node.others(&[system], &none), ["koordlet"], "{cgroup}");
        }
        for cgroup in ["/", "/system.slice/koordlet.service", "/../../../../system.slice/koordlet.service"] {
            let node = Node::new();
            node.process("koordlet", cgroup);
            assert_eq!(node.others(&[], &none), ["koordlet"], "{cgroup}");
        }
        let node = Node::new();
        node.process("koordlet", "/kubepods/besteffort");
        assert!(node.others(&[], &none).is_empty(), "below kubepods, and in no pod");
    }

    #[test]
    fn nri_policies_are_known_by_what_the_kernel_leaves_of_their_names() {
        for (comm, agent) in [
            ("nri-resource-po", Some("nri-resource-policy")),
            ("10-nri-resource", Some("nri-resource-policy")),
            ("10-topology-awa", Some("topology-aware")),
            ("90-balloons", Some("balloons")),
            ("dracpu", Some("dracpu")),
            ("balloons", None),
            ("10-device-injec", None),
            ("10-", None),
        ] {
            assert_eq!(agent_named(comm, COMM_LENGTH), agent, "{comm}");
        }
    }

    #[test]
    fn an_image_counts_where_it_runs_in_a_named_namespace() {
        let (node, none) = (Node::new(), ExclusiveCpus::default());
        let others = |namespace, state| node.others(&[pod(namespace, "example.org/koordlet:v1.6", state)], &none);
        assert_eq!(others("kube-system", ContainerState::Running), ["koordlet"]);
        assert!(others("shop", ContainerState::Running).is_empty(), "a tenant's");
        assert!(others("kube-system", ContainerState::Waiting).is_empty(), "it has never started");
    }

    #[test]
    fn a_dra_cpu_driver_is_known_by_its_sockets_or_its_claims() {
        let none = ExclusiveCpus::default();
        let claims = ExclusiveCpus { drivers: ["dra.cpu".into(), "gpu.example.com".into()].into(), ..none.clone() };
        assert_eq!(Node::new().others(&[], &claims), ["the DRA driver dra.cpu"]);
        for socket in ["plugins/dra.cpu/dra.sock", "plugins_registry/dra.cpu-reg.sock"] {
            let node = Node::new();
            let path = node.0.path().join("kubelet").join(socket);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            assert!(node.others(&[], &none).is_empty(), "{socket}: no socket");
            std::fs::remove_file(&path).unwrap();
            let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            assert!(node.others(&[], &none)[0].contains("dra.cpu"), "{socket}");
        }
    }
}
