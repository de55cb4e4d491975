//! One cgroup of the tree.

use std::sync::Arc;
use std::time::Instant;

use kubepods::path::{CgroupPath, ContainerCgroup, PodCgroup};

use crate::CgroupId;

/// A cgroup, as it was found. It never changes: a directory that is removed and created again is
/// another cgroup with another id.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeCgroup {
    /// Id of the cgroup; the same for all subscribers.
    pub id: CgroupId,
    /// The cgroup above it; `None` for the mount's root, and for a root of another kubelet.
    pub parent: Option<CgroupId>,
    /// Path below the mount, such as `kubepods/burstable/pod…/…`; empty for the mount's root.
    pub path: Arc<str>,
    /// Inode; the kernel's id of the cgroup.
    pub inode: u64,
    /// Role of the cgroup.
    pub role: Role,
    /// Whether it is below, above or the root of this kubelet; otherwise another kubelet made it,
    /// or the kubelet cannot be determined.
    pub is_this_kubelets: bool,
    /// Time of discovery.
    pub found: Instant,
    /// Whether inotify reported its creation, or its parent's: it is then younger than the tree.
    /// False for a cgroup that a walk found.
    pub seen_created: bool,
}

/// Sort key of a path below the mount: ancestors have a lower one than their descendants.
#[must_use]
pub const fn depth_key(path: &str) -> usize {
    // A descendant's path is longer than its ancestors'.
    path.len()
}

/// Role of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// An ancestor of the kubepods root, up to the mount's root.
    Above,
    /// A kubepods root.
    Root,
    /// A cgroup that a kubelet or a known runtime created. Never [`CgroupPath::Nested`]: these come
    /// and go with the container's application and are not part of the tree.
    Known(CgroupPath),
    /// A child of a pod that no known runtime has created, such as Kata's.
    Foreign {
        /// The pod.
        pod: PodCgroup,
        /// The container id in its name; otherwise its name.
        id: Box<str>,
    },
    /// A container outside of the kubepods roots, found by its id ([`Subscription::seek`]).
    ///
    /// [`Subscription::seek`]: crate::Subscription::seek
    Stray(ContainerCgroup),
}

impl Role {
    /// Whether its sub-directories are cgroups of the tree.
    #[must_use]
    pub fn has_children(&self) -> bool {
        match self {
            Self::Above | Self::Root => true,
            Self::Known(path) => matches!(
                path,
                CgroupPath::Partition { .. } | CgroupPath::Qos { .. } | CgroupPath::Pod(_)
            ),
            Self::Foreign { .. } | Self::Stray(_) => false,
        }
    }

    /// UID of the pod of a pod's cgroup and of those below it.
    #[must_use]
    pub fn pod_uid(&self) -> Option<&str> {
        match self {
            Self::Above | Self::Root => None,
            Self::Known(path) => path.pod().map(|pod| &*pod.uid),
            Self::Foreign { pod, .. } => Some(&pod.uid),
            Self::Stray(container) => Some(&container.pod.uid),
        }
    }

    /// The container or sandbox.
    #[must_use]
    pub fn container(&self) -> Option<&ContainerCgroup> {
        match self {
            Self::Known(CgroupPath::Container(container)) | Self::Stray(container) => {
                Some(container)
            }
            _ => None,
        }
    }
}
