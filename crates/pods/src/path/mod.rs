//! The grammar of cgroup paths below `kubepods`: what a path says about QoS class, pod, container and runtime.
//!
//! Pure: text in, values out, and back again ([`CgroupPath`] displays as exactly the path it was parsed from). It knows
//! nothing of a hierarchy's mount point, of cgroup v1 or v2 (the names are the same), or of the pods that run.
//!
//! The names come from the kubelet (`pkg/kubelet/cm`: `CgroupName.ToCgroupfs`, `ToSystemd`) for everything down to the
//! pod, and from the container runtime below it.

mod format;
mod parse;
mod root;

pub use parse::parse;
pub use root::{Root, Split, Tops, choose_tops, kubepods_root, split};

/// Who makes the cgroups: decides how their names are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The runtime itself, by mkdir: `kubepods/burstable/pod<uid>/<id>`.
    Cgroupfs,
    /// systemd, by slices and scopes: `kubepods.slice/kubepods-burstable.slice/…`.
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
    /// Every container has equal requests and limits; its pods sit directly below `kubepods`.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// Neither request nor limit.
    BestEffort,
}

impl QosClass {
    /// The spelling of `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Inverse of [`QosClass::as_str`]; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort].into_iter().find(|class| class.as_str() == name)
    }

    /// The QoS level's part of a cgroup name; `None` for Guaranteed, which has no level of its own.
    fn level(self) -> Option<&'static str> {
        match self {
            Self::Guaranteed => None,
            Self::Burstable => Some("burstable"),
            Self::BestEffort => Some("besteffort"),
        }
    }
}

/// The part of the kubelet's tree that a pod is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// Directly below kubepods: every pod of a kubelet without partitions.
    #[default]
    Default,
    /// Below `kubepods/system`: pods of the namespaces that `systemPartition` of the kubelet's configuration lists
    /// (Kubernetes 1.37, feature gate NodeSystemPartition, KEP-5894). QoS levels repeat below it.
    System,
}

impl Partition {
    /// The partition's part of a cgroup name; `None` for the default one, which has no level of its own.
    fn level(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::System => Some("system"),
        }
    }
}

/// The runtime that a container's cgroup name tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// A bare id, the cgroupfs driver's form under containerd, dockershim and cri-dockerd alike.
    Unnamed,
    /// `cri-containerd-<id>.scope`.
    Containerd,
    /// `crio-<id>.scope`; `crio-<id>` under the cgroupfs driver.
    Crio,
    /// `docker-<id>.scope`, from dockershim and cri-dockerd.
    Docker,
}

impl Runtime {
    /// What stands before the id, dash included.
    fn prefix(self) -> &'static str {
        match self {
            Self::Unnamed => "",
            Self::Containerd => "cri-containerd-",
            Self::Crio => "crio-",
            Self::Docker => "docker-",
        }
    }
}

/// What CRI-O puts before the id of a container's monitor.
const CONMON_PREFIX: &str = "crio-conmon-";

/// The cgroup of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodCgroup {
    /// The pod's UID with dashes, or the 32 hex digits of a static pod's configuration hash.
    pub uid: Box<str>,
    /// QoS class, from where the pod sits.
    pub qos: QosClass,
    /// Part of the tree that it sits in.
    pub partition: Partition,
    /// Which tree it sits in.
    pub root: Root,
}

/// The cgroup of one container, of a pod's sandbox (the two look alike), or of a container's monitor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerCgroup {
    /// The pod that it is in.
    pub pod: PodCgroup,
    /// The runtime's id: 64 lower-case hex digits.
    pub id: Box<str>,
    /// What the name tells of the runtime.
    pub runtime: Runtime,
}

/// What a path below `kubepods` is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CgroupPath {
    /// The system partition: QoS levels and pods below it.
    SystemPartition {
        /// Which tree it sits in.
        root: Root,
    },
    /// A QoS level: Burstable or BestEffort.
    Qos {
        /// Never Guaranteed.
        class: QosClass,
        /// Part of the tree that it sits in.
        partition: Partition,
        /// Which tree it sits in.
        root: Root,
    },
    /// A pod.
    Pod(PodCgroup),
    /// A container or a pod's sandbox; only the pod's status tells which ([`crate::PodIndex::container`]).
    Container(ContainerCgroup),
    /// CRI-O's monitor of the container of this id. Holds no workload.
    Conmon(ContainerCgroup),
    /// Anything below a container: it belongs to that container (nested runtimes, systemd inside, crun's `container`).
    Nested {
        /// The container.
        container: ContainerCgroup,
        /// The rest of the path, without a leading slash.
        below: Box<str>,
    },
}

impl CgroupPath {
    /// The pod, for a pod and everything below it.
    pub fn pod(&self) -> Option<&PodCgroup> {
        match self {
            Self::SystemPartition { .. } | Self::Qos { .. } => None,
            Self::Pod(pod) => Some(pod),
            Self::Container(container) | Self::Conmon(container) | Self::Nested { container, .. } => {
                Some(&container.pod)
            }
        }
    }
}
