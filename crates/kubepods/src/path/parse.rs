//! Parser from text to [`CgroupPath`].

use super::root::{cgroupfs, systemd};
use super::{
    CONMON_PREFIX, CgroupPath, ContainerCgroup, Driver, Partition, PodCgroup, QosClass, Root,
    Runtime,
};

/// Parses a path relative to the kubepods root, without a leading slash:
/// `burstable/pod<uid>/<id>`,
/// `kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/crio-<id>.scope`,
/// `system/pod<uid>/<id>`, …
///
/// The driver and the slices' prefix follow from the names. Returns `None` for the empty path and
/// for names that neither the kubelet nor a known runtime uses.
pub fn parse(relative: &str) -> Option<CgroupPath> {
    if relative.split('/').any(str::is_empty) {
        return None;
    }
    let mut rest = Components { path: relative };
    let mut component = rest.next()?;
    let (mut root, mut partition) = (None, Partition::Default);
    if let Some((above, found)) = partition_level(component) {
        let Some(next) = rest.next() else {
            return Some(CgroupPath::Partition { partition: found, root: above });
        };
        (root, partition, component) = (Some(above), found, next);
    }
    let mut qos = QosClass::Guaranteed;
    if let Some((level, class)) = qos_level(component, partition) {
        if root.is_some_and(|root| root != level) {
            return None;
        }
        let Some(next) = rest.next() else {
            return Some(CgroupPath::Qos { class, partition, root: level });
        };
        (root, qos, component) = (Some(level), class, next);
    }
    let pod = pod_cgroup(component, qos, partition)?;
    if root.is_some_and(|root| root != pod.root) {
        return None;
    }
    let Some(leaf) = rest.next() else { return Some(CgroupPath::Pod(pod)) };
    below_pod(pod, leaf, rest.path)
}

fn below_pod(pod: PodCgroup, leaf: &str, below: &str) -> Option<CgroupPath> {
    let name = match pod.root.driver {
        Driver::Cgroupfs => leaf,
        Driver::Systemd => leaf.strip_suffix(".scope")?,
    };
    if let Some(id) = name.strip_prefix(CONMON_PREFIX).filter(|id| is_container_id(id)) {
        let monitor = ContainerCgroup { pod, id: id.into(), runtime: Runtime::Crio };
        return below.is_empty().then_some(CgroupPath::Conmon(monitor));
    }
    let (runtime, id) = container_name(name, pod.root.driver)?;
    let container = ContainerCgroup { pod, id: id.into(), runtime };
    if below.is_empty() {
        return Some(CgroupPath::Container(container));
    }
    Some(CgroupPath::Nested { container, below: below.into() })
}

/// Parses a container's name. A bare id is the cgroupfs driver's form; `cri-containerd-` and
/// `docker-` occur only in scopes.
fn container_name(name: &str, driver: Driver) -> Option<(Runtime, &str)> {
    let runtimes: &[Runtime] = match driver {
        Driver::Cgroupfs => &[Runtime::Unnamed, Runtime::Crio],
        Driver::Systemd => &[Runtime::Containerd, Runtime::Crio, Runtime::Docker],
    };
    runtimes.iter().find_map(|runtime| {
        let id = name.strip_prefix(runtime.prefix())?;
        is_container_id(id).then_some((*runtime, id))
    })
}

/// Length of a container id.
const ID_LENGTH: usize = 64;

/// Whether the text is a container id: containerd (through the CRI), CRI-O and docker all use 32
/// random bytes in lower-case hex.
fn is_container_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The container id in the name of a cgroup that no known runtime creates: `<id>`,
/// `isulad-<id>.scope`, `kubepods-burstable-pod<uid>.slice:cri-containerd:<id>`. `None` for names
/// without an id, and for those of a container's monitor.
pub fn container_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.get(name.len().checked_sub(ID_LENGTH)?..)?;
    let before = &name[..name.len() - ID_LENGTH];
    let is_separate = before.is_empty() || before.ends_with(['-', '_', ':', '.']);
    (is_container_id(id) && is_separate && !before.contains("conmon")).then_some(id)
}

fn partition_level(component: &str) -> Option<(Root, Partition)> {
    [Partition::System, Partition::Nested].into_iter().find_map(|partition| {
        if Some(component) == partition.level() {
            return Some((cgroupfs(), partition));
        }
        Some((partition_root(component.strip_suffix(".slice")?, partition)?, partition))
    })
}

/// The tree of a slice name without suffix, QoS level and pod: `[<prefix>-]kubepods[-<partition>]`.
fn partition_root(name: &str, partition: Partition) -> Option<Root> {
    match partition.level() {
        Some(level) => systemd(name.strip_suffix(level)?.strip_suffix('-')?),
        None => systemd(name),
    }
}

fn qos_level(component: &str, partition: Partition) -> Option<(Root, QosClass)> {
    [QosClass::Burstable, QosClass::BestEffort].into_iter().find_map(|class| {
        let level = class.level()?;
        if component == level {
            return Some((cgroupfs(), class));
        }
        let prefix = component.strip_suffix(".slice")?.strip_suffix(level)?.strip_suffix('-')?;
        Some((partition_root(prefix, partition)?, class))
    })
}

fn pod_cgroup(component: &str, qos: QosClass, partition: Partition) -> Option<PodCgroup> {
    if let Some(uid) = component.strip_prefix("pod")
        && is_uid(uid)
        && !uid.contains('_')
    {
        return Some(PodCgroup { uid: uid.into(), qos, partition, root: cgroupfs() });
    }
    // The UID follows the last dash: systemd nests slices at dashes, so the kubelet replaces the
    // UID's own dashes by underscores.
    let (parent, last) = component.strip_suffix(".slice")?.rsplit_once('-')?;
    let uid = last.strip_prefix("pod").filter(|uid| is_uid(uid))?;
    let parent = match qos.level() {
        Some(level) => parent.strip_suffix(level)?.strip_suffix('-')?,
        None => parent,
    };
    Some(PodCgroup {
        uid: uid.replace('_', "-").into(),
        qos,
        partition,
        root: partition_root(parent, partition)?,
    })
}

/// Whether the text may be a UID: a UUID from the API server, 32 hex digits for a static pod, or a
/// value from a static pod's manifest. The maximum length follows from the kernel's limit of a file
/// name.
fn is_uid(text: &str) -> bool {
    text.len() <= 250
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

struct Components<'a> {
    path: &'a str,
}

impl<'a> Components<'a> {
    fn next(&mut self) -> Option<&'a str> {
        if self.path.is_empty() {
            return None;
        }
        let (component, rest) = self.path.split_once('/').unwrap_or((self.path, ""));
        self.path = rest;
        Some(component)
    }
}
