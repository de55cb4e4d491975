//! Detects other owners of this node's CPUs: two of them overwrite each other. Beside another
//! owner, pinning only observes.

mod agents;
mod nri;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use kernel_text::CpuSet;
use placement::{Kubelet, Uid};
use serde::Deserialize;

pub use agents::{OwnerSearch, other_agents};
pub use nri::connected_plugins;

/// Path of the kubelet's CPU manager state.
pub const CPU_MANAGER_STATE: &str = "/var/lib/kubelet/cpu_manager_state";

/// Default namespaces whose pods may be agents that place containers.
pub const OWNER_NAMESPACES: [&str; 2] = ["kube-system", "koordinator-system"];

/// The kubelet's `cpu_manager_state` (`pkg/kubelet/cm/cpumanager/state`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuManagerState {
    /// CPU manager policy: `none` or `static`.
    pub policy_name: String,
    /// Exclusive CPUs in list format, by pod UID and container name.
    #[serde(default)]
    pub entries: BTreeMap<String, BTreeMap<String, String>>,
}

impl CpuManagerState {
    /// Reads the kubelet's file.
    ///
    /// # Errors
    /// A message that names the file, in one line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let failed = |error| format!("{place} cannot be read: {error}");
        let mut file = File::open(path).map_err(failed)?;
        // The kubelet replaces the file. A volume of the file alone keeps showing the old one,
        // which then has no links.
        if file.metadata().map_err(failed)?.nlink() == 0 {
            return Err(format!(
                "the kubelet replaced {place}; restart the agent's pod to read the new file"
            ));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| format!("{place}: {error}"))
    }

    /// Number of containers with exclusive CPUs.
    #[must_use]
    pub fn containers(&self) -> usize {
        self.entries.values().map(BTreeMap::len).sum()
    }

    /// Exclusive CPUs granted by the kubelet, regardless of the policy. A pod with an invalid CPU
    /// list is included.
    pub(crate) fn exclusive(&self) -> KubeletsOwn {
        let lists = self
            .entries
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|list| list.parse::<CpuSet>().ok());
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

    /// Whether the policy grants exclusive CPUs.
    ///
    /// # Errors
    /// A policy that is neither `none` nor `static`.
    pub(crate) fn is_static(policy: &str) -> Result<bool, String> {
        match policy {
            "none" => Ok(false),
            "static" => Ok(true),
            other => Err(format!("unknown CPU manager policy {other:?} of the kubelet")),
        }
    }

    /// Converts to the planner's view of the kubelet.
    ///
    /// # Errors
    /// A policy that is neither `none` nor `static`, or an invalid CPU list.
    pub fn kubelet(&self) -> Result<Kubelet, String> {
        for list in self.entries.values().flat_map(BTreeMap::values) {
            list.parse::<CpuSet>().map_err(|error| format!("cpu_manager_state: {error}"))?;
        }
        let KubeletsOwn { pods, cpus } = self.exclusive();
        let static_policy = Self::is_static(&self.policy_name)?;
        Ok(Kubelet { static_policy, exclusive: cpus, pods, ..Kubelet::default() })
    }
}

/// Pods with exclusive CPUs from the kubelet. Their cgroups are never written here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KubeletsOwn {
    /// UIDs of the pods.
    pub(crate) pods: BTreeSet<Uid>,
    /// Exclusive CPUs of all these pods.
    pub(crate) cpus: CpuSet,
}

impl KubeletsOwn {
    /// Whether the kubelet granted no exclusive CPUs.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.cpus.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_decode_to_a_state_with_all_pods_or_an_error() {
        let tokens: [&[u8]; 5] = [b"\"static\"", b"\"0-8191\"", b"null", b"{}", b"\"\""];
        corpus::run(env!("CARGO_MANIFEST_DIR"), "cpu_manager_state", &tokens, |bytes| {
            let limit = (64 << 10) + 256 * bytes.len();
            let read = || serde_json::from_slice::<CpuManagerState>(bytes);
            let Ok(state) = corpus::within(limit, read) else { return };
            // A CPU list of ten bytes can expand to a set of a kilobyte.
            let (kubelet, own) = corpus::within(limit, || (state.kubelet(), state.exclusive()));
            let lists = |uid: &Uid| &state.entries[&**uid];
            assert!(own.pods.iter().all(|uid| !lists(uid).is_empty()));
            assert_eq!(
                own.pods.len(),
                state.entries.values().filter(|lists| !lists.is_empty()).count()
            );
            for cpus in state
                .entries
                .values()
                .flat_map(BTreeMap::values)
                .filter_map(|list| list.parse().ok())
            {
                assert_eq!(own.cpus.union(&cpus), own.cpus);
            }
            let Ok(kubelet) = kubelet else { return };
            assert_eq!(kubelet.static_policy, state.policy_name == "static");
            assert_eq!((kubelet.exclusive, kubelet.pods), (own.cpus, own.pods));
        });
    }

    #[test]
    fn a_state_file_that_the_kubelet_has_replaced_is_not_believed() {
        use std::os::fd::AsRawFd as _;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cpu_manager_state");
        std::fs::write(&path, r#"{"policyName":"none"}"#).unwrap();
        assert_eq!(CpuManagerState::read(&path).unwrap().policy_name, "none");
        // Like a volume of the file after its removal: the same inode, without a name.
        let mounted = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let error =
            CpuManagerState::read(Path::new(&format!("/proc/self/fd/{}", mounted.as_raw_fd())))
                .unwrap_err();
        assert!(error.contains("replaced") && error.contains("restart the agent's pod"), "{error}");
    }

    fn kubelet(json: &str) -> Result<Kubelet, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu_manager_state");
        std::fs::write(&path, json).unwrap();
        CpuManagerState::read(&path)?.kubelet()
    }

    #[test]
    fn policy_and_assignments_are_read_from_the_kubelets_file() {
        // kubelet 1.32, policies none and static.
        let none =
            kubelet(r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#).unwrap();
        assert_eq!(none, Kubelet::default());
        let json = r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"a":"2","b":"4-5"}},"checksum":1}"#;
        let exclusive = "2,4-5".parse().unwrap();
        assert_eq!(
            kubelet(json).unwrap(),
            Kubelet {
                static_policy: true,
                exclusive,
                pods: ["u".into()].into(),
                ..Kubelet::default()
            }
        );
    }

    #[test]
    fn an_unknown_policy_is_an_error_and_not_none() {
        assert!(kubelet(r#"{"policyName":"dynamic"}"#).unwrap_err().contains("dynamic"));
        assert!(kubelet(r#"{"policyName":"static","entries":{"u":{"a":"x"}}}"#).is_err());
        assert!(kubelet("").is_err());
        assert!(
            CpuManagerState::read(Path::new("/nowhere/state"))
                .unwrap_err()
                .contains("/nowhere/state")
        );
    }
}
