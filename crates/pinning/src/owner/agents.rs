//! Detects agents other than the kubelet that place containers, by processes, images, sockets and
//! claims. A tenant may give a process or an image any name. A name alone therefore counts only
//! where tenants have no access.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cgroupfs::bounded;
use kubepods::model::{ContainerState, Phase, Pod};
use kubepods::{ExclusiveCpus, PodIndex, path};

use super::nri::NriSocket;

/// Prefixes of process and image names of agents that place containers on CPUs.
const AGENTS: [&str; 7] = [
    "koordlet",
    "nri-resource-policy",
    "cri-resmgr",
    "katalyst-agent",
    "crane-agent",
    "dracpu",
    "dra-driver-cpu",
];
/// Names of NRI policy plugins. If the runtime launches them (/opt/nri/plugins), two digits and a
/// dash precede the name (`10-balloons`).
const NRI_POLICIES: [&str; 2] = ["balloons", "topology-aware"];
/// Drivers of dynamic resource allocation that place containers on CPUs
/// (kubernetes-sigs/dra-driver-cpu).
const CPU_DRIVERS: [&str; 1] = ["dra.cpu"];
/// The kernel truncates process names to this length (`TASK_COMM_LEN` less the NUL).
const COMM_LENGTH: usize = 15;

/// Directories to search for other agents, and the namespaces in which a name counts.
#[derive(Debug, Clone, Copy)]
pub struct OwnerSearch<'a> {
    /// The node's `/proc`.
    pub proc_root: &'a Path,
    /// The kubelet's root directory, with the sockets of its plugins.
    pub kubelet_root: &'a Path,
    /// Namespaces whose pods may be agents that place containers. Elsewhere a name proves nothing:
    /// any tenant can choose it.
    pub namespaces: &'a [String],
}

/// Detected agents other than the kubelet that place containers here. By process: those of the
/// host, of pods in the named namespaces, and of any pod with access to the runtime's NRI socket.
/// By other signs: running containers in the named namespaces, and drivers that allocate CPUs.
#[must_use]
pub fn other_agents(
    search: &OwnerSearch<'_>,
    pods: &PodIndex,
    resources: &ExclusiveCpus,
) -> Vec<String> {
    let mut found = processes(search, pods);
    found.extend(images(search, pods));
    found.extend(drivers(search, resources));
    found.into_iter().collect()
}

/// The known agent with this process or image name.
fn agent_named(name: &str, cut_at: usize) -> Option<&'static str> {
    let digits = name.as_bytes();
    let is_launched =
        digits.len() > 3 && digits[..2].iter().all(u8::is_ascii_digit) && digits[2] == b'-';
    let (name, launched) =
        if is_launched { (&name[3..], &NRI_POLICIES[..]) } else { (name, &[][..]) };
    let cut_at = if is_launched { cut_at.saturating_sub(3) } else { cut_at };
    let is = |agent: &&&'static str| name.starts_with(&agent[..agent.len().min(cut_at)]);
    AGENTS.iter().chain(launched).find(is).copied()
}

/// Location of a process that has an agent's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    NamedNamespace,
    /// A pod of another namespace, or an unknown pod.
    OtherPod,
}

/// Name to report for a process with an agent's name; `None` if it does not count as an agent.
fn judge(agent: &str, place: Place, reaches_nri: impl FnOnce() -> bool) -> Option<String> {
    match place {
        Place::Host | Place::NamedNamespace => Some(agent.to_owned()),
        // Only root on the node can mount that socket's directory into a pod.
        Place::OtherPod => {
            reaches_nri().then(|| format!("{agent} (a pod with the runtime's NRI socket)"))
        }
    }
}

fn processes(search: &OwnerSearch<'_>, pods: &PodIndex) -> BTreeSet<String> {
    let nri = LazyCell::new(|| NriSocket::find(search.proc_root));
    let entries = fs::read_dir(search.proc_root).into_iter().flatten().flatten();
    let processes =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let agents = processes.filter_map(|entry| {
        let process = entry.path();
        // A process that has ended meanwhile has no name or no cgroup.
        let comm = bounded::read(&process.join("comm"), bounded::FILE_BYTES).ok()?;
        let agent =
            agent_named(String::from_utf8_lossy(&comm).trim_end_matches('\n'), COMM_LENGTH)?;
        let place = match bounded::read(&process.join("cgroup"), bounded::CGROUP_BYTES) {
            Ok(cgroups) => place(&String::from_utf8_lossy(&cgroups), search.namespaces, pods),
            Err(_) if process.join("comm").exists() => Place::Host,
            Err(_) => return None,
        };
        judge(agent, place, || nri.as_ref().is_some_and(|nri| nri.is_reached_by(&process)))
    });
    agents.collect()
}

/// Location of a process by `/proc/PID/cgroup`: the least trusted one over all hierarchies.
fn place(cgroups: &str, namespaces: &[String], pods: &PodIndex) -> Place {
    // A line cut off by the size limit may lack the pod; complete lines end with a newline.
    let lines = cgroups.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let places = lines
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .map(|path| place_of(path, namespaces, pods));
    places
        .reduce(|all, place| if all == Place::Host { place } else { least_trusted(all, place) })
        .unwrap_or(Place::Host)
}

fn least_trusted(one: Place, other: Place) -> Place {
    if one == Place::OtherPod || other == Place::OtherPod {
        Place::OtherPod
    } else {
        Place::NamedNamespace
    }
}

/// Location of one cgroup path. A path that leads out of this process's cgroup namespace
/// (`/../../…`) shows only the pod, not the root.
fn place_of(cgroup: &str, namespaces: &[String], pods: &PodIndex) -> Place {
    let mut components = cgroup.split('/');
    let is_kubepods =
        |name: &str| path::kubepods_root(name).is_some() || name.starts_with("kubepods");
    match components.clone().find_map(pod_uid) {
        Some(uid)
            if pods
                .pod(&uid)
                .is_some_and(|pod| namespaces.iter().any(|name| **name == *pod.namespace)) =>
        {
            Place::NamedNamespace
        }
        Some(_) => Place::OtherPod,
        None if components.any(is_kubepods) => Place::OtherPod,
        None => Place::Host,
    }
}

/// UID in the name of a pod's cgroup: `pod<uid>`, or `…-pod<uid with underscores>.slice`.
fn pod_uid(component: &str) -> Option<String> {
    let slice = component
        .strip_suffix(".slice")
        .and_then(|name| name.rsplit_once("-pod"))
        .map(|(_, uid)| uid);
    let uid = slice.or_else(|| component.strip_prefix("pod"))?.replace('_', "-");
    let is_uid =
        uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_uid.then_some(uid)
}

fn images<'a>(
    search: &'a OwnerSearch<'_>,
    pods: &'a PodIndex,
) -> impl Iterator<Item = String> + 'a {
    let named = |pod: &&Arc<Pod>| search.namespaces.iter().any(|name| **name == *pod.namespace);
    let running = pods.pods().iter().filter(move |pod| pod.phase == Phase::Running && named(pod));
    let containers =
        running.flat_map(|pod| &pod.containers).filter(|c| c.state == ContainerState::Running);
    containers.filter_map(|container| {
        let last = container.image.rsplit('/').next()?;
        agent_named(last, usize::MAX).map(str::to_owned)
    })
}

/// Detected drivers of dynamic resource allocation that place containers on CPUs, by the kubelet's
/// list of claims and by their sockets in the kubelet's directory.
fn drivers(search: &OwnerSearch<'_>, resources: &ExclusiveCpus) -> impl Iterator<Item = String> {
    CPU_DRIVERS.into_iter().filter_map(|driver| {
        let registered = sockets_in(&search.kubelet_root.join("plugins_registry"));
        let registered = registered.filter(|path| is_registration(path, driver));
        let socket =
            sockets_in(&search.kubelet_root.join("plugins").join(driver)).chain(registered).next();
        let by_socket = socket.map(|socket| format!("socket {}", socket.display()));
        let by_claims = resources
            .drivers
            .get(driver)
            .map(|containers| format!("claims of {containers} containers"));
        let evidence: Vec<String> = by_socket.into_iter().chain(by_claims).collect();
        (!evidence.is_empty()).then(|| format!("the DRA driver {driver} ({})", evidence.join(", ")))
    })
}

/// Whether a socket in `plugins_registry` belongs to this driver. Its name is
/// `<driver>[-<text>].sock`; during an update the text contains the plugin's UID
/// (pkg/kubelet/pluginmanager/pluginwatcher).
fn is_registration(socket: &Path, driver: &str) -> bool {
    let name = socket
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_suffix(".sock"));
    name.and_then(|name| name.strip_prefix(driver))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn sockets_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
}

#[cfg(test)]
mod tests;
