//! The pods' cpusets: their cgroups with configured and effective CPUs. All files are opened
//! read-only.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cgroupfs::cpuset::{Cpuset, CpusetFiles};
use cgroupfs::{Hierarchy, TreeEvent, TreeWatch, subdirectories};
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::path::{self, CgroupPath};
use placement::{Cgroup, PodCgroups, Uid};

use crate::{Error, Result};

/// Maximum depth of the kubepods root: `/docker/<id>/kubelet.slice/kubelet-kubepods.slice` on kind.
const LOCATE_DEPTH: usize = 5;

/// The cgroups below the kubepods root in the hierarchy of the cpuset controller, down to the
/// children of pods. CPUs of deeper cgroups lie within their container's: on v2 the kernel ensures
/// it, on v1 the writer of the container's cpuset.
#[derive(Debug)]
pub(crate) struct PodTree {
    mount: PathBuf,
    version: CgroupVersion,
    /// Roots named by the operator, below the mount; if empty, they are searched for.
    named_roots: Vec<String>,
    roots: Vec<PathBuf>,
    /// The root that holds this kubelet's pods, once known.
    home: Option<PathBuf>,
    watch: Option<TreeWatch>,
    /// Parents before children, because paths are ordered by component.
    cgroups: BTreeMap<PathBuf, Known>,
    overflowed: bool,
    buffer: Vec<u8>,
    /// Maximum number of descriptors kept open.
    descriptors: usize,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    /// The pod; `None` for the root and the QoS levels.
    pod: Option<Uid>,
    /// Whether the kubelet or a known runtime made the cgroup. False for an unknown child of a pod
    /// (Kata's `kata_<id>`).
    ours: bool,
    files: Option<CpusetFiles>,
    watched: bool,
    since: Instant,
}

/// All cpusets below one root at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) hierarchy: placement::Hierarchy,
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

impl PodTree {
    /// # Errors
    /// This machine has no cpuset controller.
    pub(crate) fn new(
        hierarchy: &Hierarchy,
        named_roots: Vec<String>,
        descriptors: usize,
    ) -> Result<Self> {
        let mount = hierarchy.cpuset.clone();
        let mount = mount.ok_or_else(|| {
            Error::NoCpusets(
                "no cpuset controller is mounted; mount it (cgroup v1) or \
             enable it in cgroup.subtree_control (cgroup v2)"
                    .to_owned(),
            )
        })?;
        Ok(Self {
            mount,
            version: hierarchy.version,
            named_roots,
            roots: Vec::new(),
            home: None,
            // Without inotify only the walk finds new cgroups; it tries again to create the watch.
            watch: TreeWatch::new().ok(),
            cgroups: BTreeMap::new(),
            overflowed: false,
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

    /// Descriptor that becomes readable when cgroups come and go.
    pub(crate) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(TreeWatch::as_fd)
    }

    /// Whether the whole tree must be walked again.
    pub(crate) fn must_walk(&self) -> bool {
        let is_blind = self.cgroups.values().any(|known| !known.watched);
        self.watch.is_none() || self.overflowed || self.cgroups.is_empty() || is_blind
    }

    /// Applies pending inotify events.
    pub(crate) fn drain_events(&mut self, now: Instant) {
        let Some(mut watch) = self.watch.take() else { return };
        let mut events = Vec::new();
        let drained = watch.drain(|event| events.push(event));
        self.watch = drained.is_ok().then_some(watch);
        for event in events {
            match event {
                TreeEvent::Overflow => self.overflowed = true,
                TreeEvent::Populated(_) | TreeEvent::Set(_) | TreeEvent::Attached(_) => {}
                TreeEvent::Removed(path) => self.removed(&path),
                TreeEvent::Appeared(path) => self.appeared(&path, now),
            }
        }
    }

    /// Lists the whole tree, and retries watches that are missing.
    pub(crate) fn walk(&mut self, now: Instant) {
        self.overflowed = false;
        if self.watch.is_none() {
            self.watch = TreeWatch::new().ok();
            self.cgroups.values_mut().for_each(|known| known.watched = false);
        }
        let gone: Vec<PathBuf> =
            self.cgroups.keys().filter(|path| !self.is_same(path)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
        self.roots = self.find_roots();
        for root in self.roots.clone() {
            self.meet(&root, now);
        }
    }

    /// Roots of this and other kubelets: those named by the operator, or cgroups with exactly the
    /// names a kubelet gives.
    fn find_roots(&self) -> Vec<PathBuf> {
        if !self.named_roots.is_empty() {
            return self.named_roots.iter().map(|root| self.mount.join(root)).collect();
        }
        let hits =
            cgroupfs::locate(&self.mount, LOCATE_DEPTH, |name| path::kubepods_root(name).is_some());
        let is_root = |hit: &PathBuf| {
            let relative = hit.strip_prefix(&self.mount).ok().and_then(Path::to_str);
            relative.and_then(path::split).is_some_and(|split| split.relative.is_empty())
        };
        hits.unwrap_or_default().into_iter().filter(is_root).collect()
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

    fn is_same(&self, path: &Path) -> bool {
        self.cgroups
            .get(path)
            .is_some_and(|known| cgroupfs::inode(path).is_ok_and(|inode| inode == known.inode))
    }

    fn removed(&mut self, path: &Path) {
        // The name may already be in use again: then the event is about the previous cgroup.
        if !self.is_same(path) {
            self.forget(path);
        }
    }

    fn appeared(&mut self, path: &Path, now: Instant) {
        if path.parent().is_some_and(|parent| self.cgroups.contains_key(parent)) {
            self.meet(path, now);
        }
    }

    fn forget(&mut self, path: &Path) {
        let below: Vec<PathBuf> = self
            .cgroups
            .range(path.to_owned()..)
            .map(|(at, _)| at.clone())
            .take_while(|at| at.starts_with(path))
            .collect();
        for path in below {
            self.cgroups.remove(&path);
            if let Some(watch) = &mut self.watch {
                watch.forget(&path);
            }
        }
    }

    /// Adds a cgroup and those below it, down to the containers; skips cgroups that are not of
    /// Kubernetes.
    fn meet(&mut self, path: &Path, now: Instant) {
        let mut found = vec![path.to_owned()];
        while let Some(path) = found.pop() {
            if self.meet_one(&path, now) {
                found.extend(
                    subdirectories(&path)
                        .unwrap_or_default()
                        .into_iter()
                        .map(|child| path.join(child.name)),
                );
            }
        }
    }

    /// Adds a cgroup; returns whether its children must be added too.
    fn meet_one(&mut self, path: &Path, now: Instant) -> bool {
        let Ok(inode) = cgroupfs::inode(path) else { return false };
        if self.cgroups.get(path).is_some_and(|known| known.inode != inode) {
            self.forget(path);
        }
        if !self.cgroups.contains_key(path) {
            let Some((pod, ours)) = self.place(path) else { return false };
            let known = Known { inode, pod, ours, files: None, watched: false, since: now };
            self.cgroups.insert(path.to_owned(), known);
        }
        let Some(known) = self.cgroups.get(path) else { return false };
        let (is_listed, watched) = (self.pod_of(path.parent()).is_none(), known.watched);
        if !watched && let Some(watch) = &mut self.watch {
            // Cgroups below a container are not watched: its application creates and removes them.
            let done = if is_listed { watch.watch(path) } else { watch.watch_leaf(path) };
            if let Some(known) = self.cgroups.get_mut(path) {
                known.watched = done.is_ok();
            }
        }
        is_listed
    }

    fn pod_of(&self, path: Option<&Path>) -> Option<&Uid> {
        self.cgroups.get(path?)?.pod.as_ref()
    }

    /// The pod of a cgroup, and whether the kubelet or a known runtime made the cgroup.
    fn place(&self, path: &Path) -> Option<(Option<Uid>, bool)> {
        let root = self.roots.iter().find(|root| path.starts_with(root))?;
        if path == root {
            return Some((None, true));
        }
        let parent = self.pod_of(path.parent()).cloned();
        match path.strip_prefix(root).ok()?.to_str().and_then(path::parse) {
            Some(CgroupPath::Nested { .. }) => None,
            Some(parsed) => Some((parsed.pod().map(|pod| Uid::from(&*pod.uid)), true)),
            // A child of a pod that is not a known container: only root on the host creates cgroups
            // there.
            None => parent.map(|uid| (Some(uid), false)),
        }
    }

    /// Reads every cpuset of the root. Skips cgroups removed meanwhile; an unreadable cpuset is
    /// reported for its pod.
    ///
    /// # Errors
    /// No kubepods cgroup with a cpuset, or one that cannot be read.
    pub(crate) fn view(&mut self, possible: &CpuSet) -> Result<View> {
        let root = self.root().unwrap_or_else(|| self.mount.join("kubepods"));
        let (mut pods, mut ceiling) = (Vec::<PodCgroups>::new(), None::<CpuSet>);
        let (mut levels, mut confined) = (BTreeMap::<&Path, CpuSet>::new(), None);
        let (mut seen, mut gone, mut unreadable) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut descriptors = self.descriptors;
        let below =
            self.cgroups.range_mut(root.clone()..).take_while(|(path, _)| path.starts_with(&root));
        for (path, known) in below {
            let read = match (
                known.read(path, self.version, &mut descriptors, &mut self.buffer),
                &known.pod,
            ) {
                (Ok(read), _) => read,
                (Err(error), _) if error.is_vanished() => {
                    gone.push(path.clone());
                    continue;
                }
                (Err(error), Some(uid)) => {
                    unreadable.insert(uid.clone(), crate::pinner::chain(&Error::from(error)));
                    continue;
                }
                (Err(error), None) => return Err(error.into()),
            };
            let Some(cpuset) = read else { continue };
            if self.version == CgroupVersion::V2
                && known.pod.is_some()
                && is_apart(&cpuset, ceiling.as_ref())
            {
                continue;
            }
            seen.insert(path.clone(), (known.since, known.inode));
            match &known.pod {
                Some(uid) => add(&mut pods, uid, path, cpuset, known.ours),
                None => {
                    let effective = cpuset.effective;
                    let above = path.parent().and_then(|parent| levels.get(parent));
                    if above.is_some_and(|above| !above.is_subset(&effective)) {
                        confined = Some((path.clone(), effective.clone()));
                    }
                    levels.insert(path, effective.clone());
                    ceiling =
                        Some(ceiling.map_or(effective.clone(), |all| all.intersection(&effective)));
                }
            }
        }
        gone.iter().for_each(|path| self.forget(path));
        let other_root = self
            .roots
            .iter()
            .find(|other| **other != root && self.running_below(other) > 0)
            .cloned();
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
        let hierarchy = placement::Hierarchy { version: self.version, ceiling, full };
        Ok(View { hierarchy, pods, seen, confined, unreadable, other_root })
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
    cgroups.push(Cgroup { path: path.to_owned(), parent, configured, effective, ours });
}
