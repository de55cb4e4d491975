//! Grammar of cgroup paths below `kubepods`: QoS class, pod, container and runtime.
//!
//! Pure: parses text to values, and formats them back ([`CgroupPath`] displays as exactly the path
//! it was parsed from). Independent of the mount point, of cgroup v1 or v2 (the names are the
//! same), and of running pods.
//!
//! The kubelet defines the names down to the pod (`pkg/kubelet/cm`: `CgroupName.ToCgroupfs`,
//! `ToSystemd`), and the container runtime those below it.

mod format;
mod parse;
mod root;

pub use parse::{container_id, parse};
pub use root::{KubepodsRoots, Root, Split, choose_roots, kubepods_root, parse_below_mount, split};

/// Creator of the cgroups, which determines the form of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The runtime itself, with mkdir: `kubepods/burstable/pod<uid>/<id>`.
    Cgroupfs,
    /// systemd, with slices and scopes: `kubepods.slice/kubepods-burstable.slice/…`.
    Systemd,
}

impl Driver {
    /// `cgroupfs` or `systemd`, as the kubelet's `cgroupDriver` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

/// Kubernetes QoS class of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Every container has equal requests and limits; the pod cgroups are directly below
    /// `kubepods`.
    Guaranteed,
    /// Some container has a request or limit.
    Burstable,
    /// No container has a request or limit.
    BestEffort,
}

impl QosClass {
    /// The spelling in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Inverse of [`QosClass::as_str`]; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort]
            .into_iter()
            .find(|class| class.as_str() == name)
    }

    /// The QoS level's part of a cgroup name; `None` for Guaranteed, which has no level.
    fn level(self) -> Option<&'static str> {
        match self {
            Self::Guaranteed => None,
            Self::Burstable => Some("burstable"),
            Self::BestEffort => Some("besteffort"),
        }
    }
}

/// The part of the kubelet's tree that contains a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// Directly below kubepods: all pods of a kubelet without partitions.
    #[default]
    Default,
    /// Below `kubepods/system`: pods of the namespaces in the kubelet's `systemPartition` setting
    /// (Kubernetes 1.37, feature gate NodeSystemPartition, KEP-5894). QoS levels repeat below it.
    System,
    /// Below `kubepods/kubepods`: all pods of a kubelet with `--cgroup-root=/kubepods`, as in
    /// Docker Desktop (docker/for-win#13822).
    Nested,
}

impl Partition {
    /// The partition's part of a cgroup name; `None` for the default one, which has no level.
    fn level(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::System => Some("system"),
            Self::Nested => Some("kubepods"),
        }
    }
}

/// The runtime, as indicated by a container's cgroup name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// Bare id: the cgroupfs driver's form with containerd, dockershim and cri-dockerd.
    Unnamed,
    /// `cri-containerd-<id>.scope`.
    Containerd,
    /// `crio-<id>.scope`; `crio-<id>` under the cgroupfs driver.
    Crio,
    /// `docker-<id>.scope`, from dockershim and cri-dockerd.
    Docker,
}

impl Runtime {
    /// Prefix of the id, including the dash.
    fn prefix(self) -> &'static str {
        match self {
            Self::Unnamed => "",
            Self::Containerd => "cri-containerd-",
            Self::Crio => "crio-",
            Self::Docker => "docker-",
        }
    }
}

/// CRI-O's prefix of the id of a container's monitor.
const CONMON_PREFIX: &str = "crio-conmon-";

/// The cgroup of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodCgroup {
    /// The pod's UID with dashes, or the 32 hex digits of a static pod's configuration hash.
    pub uid: Box<str>,
    /// QoS class, derived from the path.
    pub qos: QosClass,
    /// Part of the tree that contains it.
    pub partition: Partition,
    /// The kubelet's tree that contains it.
    pub root: Root,
}

/// The cgroup of a container, of a pod's sandbox (the two look the same), or of a container's
/// monitor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerCgroup {
    /// Pod of the cgroup.
    pub pod: PodCgroup,
    /// The runtime's id: 64 lower-case hex digits.
    pub id: Box<str>,
    /// Runtime, as indicated by the name.
    pub runtime: Runtime,
}

/// A parsed path below `kubepods`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CgroupPath {
    /// A partition of the tree, which contains QoS levels and pods.
    Partition {
        /// Never the default one, which has no level.
        partition: Partition,
        /// The kubelet's tree that contains it.
        root: Root,
    },
    /// A QoS level: Burstable or BestEffort.
    Qos {
        /// Never Guaranteed.
        class: QosClass,
        /// Part of the tree that contains it.
        partition: Partition,
        /// The kubelet's tree that contains it.
        root: Root,
    },
    /// A pod.
    Pod(PodCgroup),
    /// A container or a pod's sandbox; only the pod's status shows which
    /// ([`crate::PodIndex::container`]).
    Container(ContainerCgroup),
    /// CRI-O's monitor of the container with this id. Contains no workload.
    Conmon(ContainerCgroup),
    /// Any cgroup below a container; it belongs to that container (nested runtimes, systemd inside,
    /// crun's `container`).
    Nested {
        /// The container.
        container: ContainerCgroup,
        /// The rest of the path, without a leading slash.
        below: Box<str>,
    },
}

impl CgroupPath {
    /// The pod of a pod's cgroup and of everything below it.
    pub fn pod(&self) -> Option<&PodCgroup> {
        match self {
            Self::Partition { .. } | Self::Qos { .. } => None,
            Self::Pod(pod) => Some(pod),
            Self::Container(container)
            | Self::Conmon(container)
            | Self::Nested { container, .. } => Some(&container.pod),
        }
    }
}
