//! Who else places containers on this node's CPUs. Two that do overwrite each other, so beside another owner pinning
//! only observes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kernel_text::CpuSet;
use placement::{Kubelet, Uid};
use pods::PodIndex;
use serde::Deserialize;

/// Where the kubelet keeps the state of its CPU manager.
pub const CPU_MANAGER_STATE: &str = "/var/lib/kubelet/cpu_manager_state";

/// Beginnings of process and image names of agents that place containers on CPUs.
const AGENTS: [&str; 5] = ["koordlet", "nri-resource-policy", "cri-resmgr", "katalyst-agent", "crane-agent"];
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
        let text = std::fs::read(path).map_err(|error| format!("{place} cannot be read: {error}"))?;
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

    /// What the planner must know of the kubelet.
    ///
    /// # Errors
    /// A policy that is neither `none` nor `static`, or CPUs that are no list.
    pub fn kubelet(&self) -> Result<Kubelet, String> {
        let static_policy = match self.policy_name.as_str() {
            "none" => false,
            "static" => true,
            other => return Err(format!("the kubelet's CPU manager policy {other:?} is not known")),
        };
        let mut exclusive = CpuSet::new();
        for list in self.entries.values().flat_map(BTreeMap::values) {
            let cpus: CpuSet = list.parse().map_err(|error| format!("cpu_manager_state: {error}"))?;
            exclusive = exclusive.union(&cpus);
        }
        Ok(Kubelet { static_policy, exclusive })
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

/// The agents other than the kubelet that place containers here, by their processes or by their pods' images.
#[must_use]
pub fn other_agents(proc_root: &Path, pods: &PodIndex) -> Vec<&'static str> {
    let processes = processes(proc_root);
    let images: Vec<&str> = pods.pods().iter().flat_map(|pod| &pod.containers).map(|c| &*c.image).collect();
    let runs = |name: &&str| {
        let comm = &name[..name.len().min(COMM_LENGTH)];
        processes.iter().any(|process| process.starts_with(comm))
            || images.iter().any(|image| image.rsplit('/').next().is_some_and(|last| last.starts_with(*name)))
    };
    AGENTS.into_iter().filter(runs).collect()
}

fn processes(proc_root: &Path) -> Vec<String> {
    let all = procfs::process::all_processes_with_root(proc_root).into_iter().flatten();
    // One that has ended meanwhile has no name.
    all.filter_map(|process| Some(process.ok()?.stat().ok()?.comm)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(kubelet(json).unwrap(), Kubelet { static_policy: true, exclusive });
    }

    #[test]
    fn what_is_unknown_is_an_error_and_not_the_policy_none() {
        assert!(kubelet(r#"{"policyName":"dynamic"}"#).unwrap_err().contains("dynamic"));
        assert!(kubelet(r#"{"policyName":"static","entries":{"u":{"a":"x"}}}"#).is_err());
        assert!(kubelet("").is_err());
        assert!(CpuManagerState::read(Path::new("/nowhere/state")).unwrap_err().contains("/nowhere/state"));
    }

    #[test]
    fn another_agent_is_known_by_its_process_or_its_image() {
        let root = tempfile::tempdir().unwrap();
        assert!(other_agents(root.path(), &PodIndex::default()).is_empty());
        let container = pods::model::Container { image: "example.org/koordlet:v1.6".into(), ..Default::default() };
        let pod = pods::model::Pod { uid: "u".into(), containers: vec![container], ..Default::default() };
        let index = PodIndex::build(&PodIndex::default(), vec![pod.into()], []);
        assert_eq!(other_agents(root.path(), &index), ["koordlet"]);
    }
}
