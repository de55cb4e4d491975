//! The pods' cpusets: their cgroups with configured and effective CPUs. All files are opened
//! read-only.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroup_tree::{
    CgroupId, Change, Interests, KubepodsTree, Role, Slots, Subscription, TreeOptions,
};
use cgroupfs::Hierarchy;
use cgroupfs::cpuset::{Cpuset, CpusetFiles};
use kernel_text::{CgroupVersion, CpuSet};
use placement::{CpusetCgroup, PodCgroups, Uid};

use crate::{Error, Result};

/// The cgroups below the kubepods root in the hierarchy of the cpuset controller, down to the
/// children of pods. CPUs of deeper cgroups lie within their container's: on v2 the kernel ensures
/// it, on v1 the writer of the container's cpuset.
#[derive(Debug)]
pub(crate) struct PodTree {
    mount: PathBuf,
    version: CgroupVersion,
    subscription: Subscription,
    /// Changes to follow in the next reconciliation.
    changes: Vec<Change>,
    /// Roots of this and other kubelets, by path.
    roots: Vec<PathBuf>,
    /// The root that holds this kubelet's pods, once known.
    home: Option<PathBuf>,
    /// Parents before children, because paths are ordered by component.
    cgroups: BTreeMap<PathBuf, Known>,
    paths: Slots<PathBuf>,
    buffer: Vec<u8>,
    /// Maximum number of descriptors kept open.
    descriptors: usize,
}

#[derive(Debug)]
struct Known {
    id: CgroupId,
    inode: u64,
    /// The pod; `None` for the root and the QoS levels.
    pod: Option<Uid>,
    /// Whether the kubelet or a known runtime made the cgroup. False for an unknown child of a pod
    /// (Kata's `kata_<id>`).
    ours: bool,
    files: Option<CpusetFiles>,
    since: Instant,
}

/// All cpusets below one root at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) hierarchy: placement::CpusetHierarchy,
    pub(crate) pods: Vec<PodCgroups>,
    /// Time when each cgroup was first seen, with its inode.
    pub(crate) seen: BTreeMap<PathBuf, (Instant, u64)>,
    /// A QoS level that another writer has given fewer CPUs than kubepods has, with its CPUs.
    pub(crate) confined: Option<(PathBuf, CpuSet)>,
    /// Pods with an unreadable cpuset, with the error.
    pub(crate) unreadable: BTreeMap<Uid, String>,
    /// Another root that has running pods.
    pub(crate) other_root: Option<PathBuf>,
}

/// Result of [`PodTree::reconcile`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reconciled {
    /// Whether the hierarchy was walked.
    pub(crate) walked: bool,
    /// Whether there was a change.
    pub(crate) has_changed: bool,
}

impl PodTree {
    /// `shared`: a tree to use if it is that of the cpuset controller's hierarchy, with the roots
    /// of other kubelets; otherwise the hierarchy gets a tree of its own.
    ///
    /// # Errors
    /// This machine has no cpuset controller, or no descriptor is left.
    pub(crate) fn new(
        hierarchy: &Hierarchy,
        named_roots: Vec<String>,
        descriptors: usize,
        shared: Option<&Arc<KubepodsTree>>,
    ) -> Result<Self> {
        let mount = hierarchy.cpuset.clone();
        let mount = mount.ok_or_else(|| {
            Error::NoCpusets(
                "no cpuset controller is mounted; mount it (cgroup v1) or \
             enable it in cgroup.subtree_control (cgroup v2)"
                    .to_owned(),
            )
        })?;
        let version = hierarchy.version;
        let tree = shared.filter(|tree| tree.mount() == mount).cloned().unwrap_or_else(|| {
            let options = TreeOptions { named_roots, other_roots: true, reports: false };
            KubepodsTree::new(mount.clone(), version, options)
        });
        Ok(Self {
            mount,
            version,
            subscription: tree.subscribe(Interests::CPUSETS).map_err(Error::Watch)?,
            changes: Vec::new(),
            roots: Vec::new(),
            home: None,
            cgroups: BTreeMap::new(),
            paths: Slots::default(),
            buffer: Vec::new(),
            descriptors,
        })
    }

    pub(crate) fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Mount of the cpuset controller.
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// Descriptor that becomes readable when the tree may have changes.
    pub(crate) fn watch_fd(&self) -> BorrowedFd<'_> {
        self.subscription.as_fd()
    }

    /// The tree, shared with its other subscribers.
    pub(crate) fn shared(&self) -> &Arc<KubepodsTree> {
        self.subscription.tree()
    }

    /// Follows the changes since the last call, after a walk if one is needed or the last one is at
    /// least `max_age` old.
    pub(crate) fn reconcile(&mut self, now: Instant, max_age: Duration) -> Reconciled {
        let mut changes = std::mem::take(&mut self.changes);
        let walked = self.subscription.reconcile(now, max_age, &mut changes);
        let has_changed = !changes.is_empty();
        self.follow(changes);
        Reconciled { walked, has_changed }
    }

    fn follow(&mut self, mut changes: Vec<Change>) {
        for change in changes.drain(..) {
            match change {
                Change::Added(cgroup) => self.add(&cgroup),
                Change::Removed(id) => self.remove(id),
                // The files are read in every pass.
                _ => {}
            }
        }
        self.changes = changes;
    }

    fn add(&mut self, cgroup: &cgroup_tree::TreeCgroup) {
        // A container outside of the kubepods root is not below its pod's cpuset.
        if matches!(cgroup.role, Role::Above | Role::Stray(_)) {
            return;
        }
        let path = self.mount.join(&*cgroup.path);
        if cgroup.role == Role::Root {
            let at = self.roots.partition_point(|root| *root < path);
            self.roots.insert(at, path.clone());
        }
        let known = Known {
            id: cgroup.id,
            inode: cgroup.inode,
            pod: cgroup.role.pod_uid().map(Uid::from),
            ours: !matches!(cgroup.role, Role::Foreign { .. }),
            files: None,
            since: cgroup.found,
        };
        self.paths.insert(cgroup.id, path.clone());
        self.cgroups.insert(path, known);
    }

    fn remove(&mut self, id: CgroupId) {
        let Some(path) = self.paths.remove(id) else { return };
        self.cgroups.remove(&path);
        self.roots.retain(|root| *root != path);
    }

    /// Handles a read that has reported a missing file. A cgroup that still exists is kept: a
    /// controller was disabled, or is about to be enabled again.
    fn on_vanished(&mut self, path: &Path) {
        if let Some(known) = self.cgroups.get_mut(path) {
            known.files = None;
            // The next reconciliation follows, so that a change in the middle of a pass starts
            // another one.
            self.subscription.report_vanished(known.id, &mut self.changes);
        }
    }

    /// Finds the root with the most pods known to the kubelet. If no root has any, keeps the
    /// previous one.
    pub(crate) fn find_home(&mut self, is_known: impl Fn(&str) -> bool) {
        let count =
            |root: &PathBuf| self.pods_below(root).iter().filter(|(uid, _)| is_known(uid)).count();
        let best =
            self.roots.iter().map(|root| (count(root), root)).rev().max_by_key(|(count, _)| *count);
        if let Some((_, root)) = best.filter(|(count, _)| *count > 0) {
            self.home = Some(root.clone());
        }
    }

    fn pods_below(&self, root: &Path) -> BTreeMap<&Uid, &Path> {
        let below =
            self.cgroups.range(root.to_owned()..).take_while(|(path, _)| path.starts_with(root));
        let mut pods = BTreeMap::new();
        for (path, known) in below {
            if let Some(uid) = &known.pod {
                pods.entry(uid).or_insert(&**path);
            }
        }
        pods
    }

    /// The root to read: this kubelet's. Until it is known, the one with the most running pods.
    fn root(&self) -> Option<PathBuf> {
        match &self.home {
            Some(home) if self.roots.contains(home) => Some(home.clone()),
            _ if self.roots.len() < 2 => self.roots.first().cloned(),
            _ => self.roots.iter().rev().max_by_key(|root| self.running_below(root)).cloned(),
        }
    }

    fn running_below(&self, root: &Path) -> usize {
        self.pods_below(root).values().filter(|pod| cgroupfs::is_populated(pod)).count()
    }

    /// Reads every cpuset of the root. Skips cgroups removed meanwhile; an unreadable cpuset is
    /// reported for its pod.
    ///
    /// # Errors
    /// No kubepods cgroup with a cpuset, or one that cannot be read.
    pub(crate) fn view(&mut self, possible: &CpuSet) -> Result<View> {
        let root = self.root().unwrap_or_else(|| self.mount.join("kubepods"));
        let (mut walk, mut gone) = (CpusetWalk::default(), Vec::new());
        let mut descriptors = self.descriptors;
        let below =
            self.cgroups.range_mut(root.clone()..).take_while(|(path, _)| path.starts_with(&root));
        for (path, known) in below {
            let read = known.read(path, self.version, &mut descriptors, &mut self.buffer);
            match (read, &known.pod) {
                (Ok(Some(cpuset)), _) => walk.add(path, known, cpuset, self.version),
                (Ok(None), _) => {}
                (Err(error), _) if error.is_vanished() => gone.push(path.clone()),
                (Err(error), Some(uid)) => {
                    let reason = watchdog::errors::chain(&Error::from(error));
                    walk.unreadable.insert(uid.clone(), reason);
                }
                (Err(error), None) => return Err(error.into()),
            }
        }
        gone.iter().for_each(|path| self.on_vanished(path));
        let mut others = self.roots.iter().filter(|other| **other != root);
        let other_root = others.find(|other| self.running_below(other) > 0).cloned();
        let CpusetWalk { pods, ceiling, confined, seen, unreadable, .. } = walk;
        let ceiling = ceiling.filter(|cpus| !cpus.is_empty()).ok_or_else(|| {
            Error::NoCpusets(format!(
                "no kubepods cgroup with a cpuset below {}",
                self.mount.display()
            ))
        })?;
        let full = match self.version {
            CgroupVersion::V1 => ceiling.clone(),
            CgroupVersion::V2 => possible.clone(),
        };
        let hierarchy = placement::CpusetHierarchy { version: self.version, ceiling, full };
        Ok(View { hierarchy, pods, seen, confined, unreadable, other_root })
    }
}

/// The cpusets that were read of a root, ancestors before descendants.
#[derive(Default)]
struct CpusetWalk {
    pods: Vec<PodCgroups>,
    /// CPUs that all cgroups above the pods have.
    ceiling: Option<CpuSet>,
    /// Effective CPUs of the cgroups above the pods.
    levels: BTreeMap<PathBuf, CpuSet>,
    confined: Option<(PathBuf, CpuSet)>,
    seen: BTreeMap<PathBuf, (Instant, u64)>,
    unreadable: BTreeMap<Uid, String>,
}

impl CpusetWalk {
    fn add(&mut self, path: &Path, known: &Known, cpuset: Cpuset, version: CgroupVersion) {
        let is_of_pod = known.pod.is_some();
        if version == CgroupVersion::V2 && is_of_pod && is_apart(&cpuset, self.ceiling.as_ref()) {
            return;
        }
        self.seen.insert(path.to_owned(), (known.since, known.inode));
        match &known.pod {
            Some(uid) => add(&mut self.pods, uid, path, cpuset, known.ours),
            None => self.add_level(path, cpuset.effective),
        }
    }

    fn add_level(&mut self, path: &Path, effective: CpuSet) {
        let above = path.parent().and_then(|parent| self.levels.get(parent));
        if above.is_some_and(|above| !above.is_subset(&effective)) {
            self.confined = Some((path.to_owned(), effective.clone()));
        }
        let ceiling = self.ceiling.take();
        let ceiling = ceiling.map_or(effective.clone(), |all| all.intersection(&effective));
        self.ceiling = Some(ceiling);
        self.levels.insert(path.to_owned(), effective);
    }
}

impl Known {
    /// Reads the cpuset; keeps its files open while `descriptors` are left.
    fn read(
        &mut self,
        path: &Path,
        version: CgroupVersion,
        descriptors: &mut usize,
        buffer: &mut Vec<u8>,
    ) -> cgroupfs::Result<Option<Cpuset>> {
        if *descriptors < FILES {
            self.files = None;
            return CpusetFiles::open(path, version)?.map(|files| files.read(buffer)).transpose();
        }
        // On v2 the controller may be enabled after the directory was made.
        if self.files.is_none() {
            self.files = CpusetFiles::open(path, version)?;
        }
        let Some(files) = &self.files else { return Ok(None) };
        *descriptors -= FILES;
        files.read(buffer).map(Some)
    }
}

/// Number of descriptors of one [`CpusetFiles`].
const FILES: usize = 2;

/// Whether the cgroup is or is below a partition root (`cpuset.cpus.partition`). The kernel has
/// then removed its CPUs from the cgroups above, and the creator of the partition places its
/// processes. On v2 no other cgroup has CPUs that its ancestors lack.
fn is_apart(cpuset: &Cpuset, ceiling: Option<&CpuSet>) -> bool {
    ceiling.is_some_and(|ceiling| ceiling.is_disjoint(&cpuset.effective))
}

fn add(pods: &mut Vec<PodCgroups>, uid: &Uid, path: &Path, cpuset: Cpuset, ours: bool) {
    let at = pods.iter().rposition(|pod| pod.uid == *uid).unwrap_or_else(|| {
        pods.push(PodCgroups { uid: uid.clone(), cgroups: Vec::new() });
        pods.len() - 1
    });
    let cgroups = &mut pods[at].cgroups;
    let parent = path
        .ancestors()
        .skip(1)
        .find_map(|above| cgroups.iter().position(|cgroup| cgroup.path == above));
    let Cpuset { configured, effective } = cpuset;
    cgroups.push(CpusetCgroup { path: path.to_owned(), parent, configured, effective, ours });
}
