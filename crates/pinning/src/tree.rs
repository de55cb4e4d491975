//! The pods' cpusets: which cgroups there are, and what each asks for and gets. Everything here is opened read-only.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cgroupfs::cpuset::{Cpuset, CpusetFiles};
use cgroupfs::{Hierarchy, TreeEvent, TreeWatch, Version, subdirectories};
use kernel_text::CpuSet;
use placement::{Cgroup, PodCgroups, Uid};
use pods::path::{self, CgroupPath};

use crate::{Error, Result};

/// How deep the kubelet's top cgroup may be: `/docker/<id>/kubelet.slice/kubelet-kubepods.slice` on kind.
const LOCATE_DEPTH: usize = 5;

/// The cgroups below kubepods in the hierarchy of the cpuset controller, down to those directly below a pod. What is
/// further below lies within its container: v2's kernel keeps it there, and on v1 whoever writes the container does.
#[derive(Debug)]
pub(crate) struct PodTree {
    mount: PathBuf,
    version: Version,
    /// Roots as the operator named them, below the mount; empty: they are looked for.
    named_roots: Vec<String>,
    roots: Vec<PathBuf>,
    /// The root that holds this kubelet's pods, once that is known.
    home: Option<PathBuf>,
    watch: Option<TreeWatch>,
    /// Parents before children: paths are ordered by component.
    cgroups: BTreeMap<PathBuf, Known>,
    overflowed: bool,
    buffer: Vec<u8>,
    /// Descriptors that may be kept open.
    descriptors: usize,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    /// The pod; none for the root and the QoS levels.
    pod: Option<Uid>,
    /// Made by the kubelet or the runtime. One directly below a pod that nobody here knows is not (Kata's `kata_<id>`).
    ours: bool,
    files: Option<CpusetFiles>,
    watched: bool,
    since: Instant,
}

/// All cpusets of one root at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) hierarchy: placement::Hierarchy,
    pub(crate) pods: Vec<PodCgroups>,
    /// When each cgroup was first seen, and its inode.
    pub(crate) seen: BTreeMap<PathBuf, (Instant, u64)>,
    /// A QoS level to which somebody has given less than kubepods has, and what it has.
    pub(crate) confined: Option<(PathBuf, CpuSet)>,
    /// Pods of which a cpuset cannot be read, and why.
    pub(crate) unreadable: BTreeMap<Uid, String>,
    /// Another root with pods that run.
    pub(crate) other_root: Option<PathBuf>,
}

impl PodTree {
    /// # Errors
    /// This machine has no cpuset controller.
    pub(crate) fn new(hierarchy: &Hierarchy, named_roots: Vec<String>, descriptors: usize) -> Result<Self> {
        let mount = hierarchy.cpuset.clone();
        let mount = mount.ok_or_else(|| Error::NoCpusets("no cpuset controller is mounted here".to_owned()))?;
        Ok(Self {
            mount,
            version: hierarchy.version,
            named_roots,
            roots: Vec::new(),
            home: None,
            // Without inotify what is new is found by the walk alone, which tries again.
            watch: TreeWatch::new().ok(),
            cgroups: BTreeMap::new(),
            overflowed: false,
            buffer: Vec::new(),
            descriptors,
        })
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Mount of the cpuset controller.
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// Becomes readable when cgroups come and go.
    pub(crate) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(TreeWatch::as_fd)
    }

    /// Must everything be listed anew?
    pub(crate) fn must_walk(&self) -> bool {
        let is_blind = self.cgroups.values().any(|known| !known.watched);
        self.watch.is_none() || self.overflowed || self.cgroups.is_empty() || is_blind
    }

    /// Takes in what inotify has told.
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

    /// Lists the whole tree, and tries again to watch what is not watched.
    pub(crate) fn walk(&mut self, now: Instant) {
        self.overflowed = false;
        if self.watch.is_none() {
            self.watch = TreeWatch::new().ok();
            self.cgroups.values_mut().for_each(|known| known.watched = false);
        }
        let gone: Vec<PathBuf> = self.cgroups.keys().filter(|path| !self.is_same(path)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
        self.roots = self.find_roots();
        for root in self.roots.clone() {
            self.meet(&root, now);
        }
    }

    /// The roots of this kubelet or of others: those that the operator named, or exactly what a kubelet would name so.
    fn find_roots(&self) -> Vec<PathBuf> {
        if !self.named_roots.is_empty() {
            return self.named_roots.iter().map(|root| self.mount.join(root)).collect();
        }
        let hits = cgroupfs::locate(&self.mount, LOCATE_DEPTH, |name| path::kubepods_root(name).is_some());
        let is_root = |hit: &PathBuf| {
            let relative = hit.strip_prefix(&self.mount).ok().and_then(Path::to_str);
            relative.and_then(path::split).is_some_and(|split| split.relative.is_empty())
        };
        hits.unwrap_or_default().into_iter().filter(is_root).collect()
    }

    /// Finds the root with the pods that the kubelet knows. Where none of them has any, the one found before stays.
    pub(crate) fn find_home(&mut self, is_known: impl Fn(&str) -> bool) {
        let count = |root: &PathBuf| self.pods_below(root).iter().filter(|(uid, _)| is_known(uid)).count();
        let best = self.roots.iter().map(|root| (count(root), root)).rev().max_by_key(|(count, _)| *count);
        if let Some((_, root)) = best.filter(|(count, _)| *count > 0) {
            self.home = Some(root.clone());
        }
    }

    fn pods_below(&self, root: &Path) -> BTreeMap<&Uid, &Path> {
        let below = self.cgroups.range(root.to_owned()..).take_while(|(path, _)| path.starts_with(root));
        let mut pods = BTreeMap::new();
        for (path, known) in below {
            if let Some(uid) = &known.pod {
                pods.entry(uid).or_insert(&**path);
            }
        }
        pods
    }

    /// The root to read: this kubelet's; before it is known, the one with the most pods that run.
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
        self.cgroups.get(path).is_some_and(|known| cgroupfs::inode(path).is_ok_and(|inode| inode == known.inode))
    }

    fn removed(&mut self, path: &Path) {
        // The name may be in use again already: then this is its predecessor's removal.
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

    /// Takes in a cgroup and what is below it, down to the containers; one that is not Kubernetes' is passed over.
    fn meet(&mut self, path: &Path, now: Instant) {
        let mut found = vec![path.to_owned()];
        while let Some(path) = found.pop() {
            if self.meet_one(&path, now) {
                found.extend(subdirectories(&path).unwrap_or_default().into_iter().map(|child| path.join(child.name)));
            }
        }
    }

    /// Takes in a cgroup; whether its children are to be met too.
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
            // Cgroups below a container come and go as its application likes.
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

    /// Whose a cgroup is, and whether the kubelet or a known runtime made it.
    fn place(&self, path: &Path) -> Option<(Option<Uid>, bool)> {
        let root = self.roots.iter().find(|root| path.starts_with(root))?;
        if path == root {
            return Some((None, true));
        }
        let parent = self.pod_of(path.parent()).cloned();
        match path.strip_prefix(root).ok()?.to_str().and_then(path::parse) {
            Some(CgroupPath::Nested { .. }) => None,
            Some(parsed) => Some((parsed.pod().map(|pod| Uid::from(&*pod.uid)), true)),
            // Directly below a pod: only the host's root makes cgroups there.
            None => parent.map(|uid| (Some(uid), false)),
        }
    }

    /// Reads every cpuset of the root. What vanishes meanwhile is left out; what cannot be read is its pod's matter.
    ///
    /// # Errors
    /// No kubepods cgroup with a cpuset, or one that cannot be read.
    pub(crate) fn view(&mut self, possible: &CpuSet) -> Result<View> {
        let root = self.root().unwrap_or_else(|| self.mount.join("kubepods"));
        let (mut pods, mut ceiling) = (Vec::<PodCgroups>::new(), None::<CpuSet>);
        let (mut levels, mut confined) = (BTreeMap::<&Path, CpuSet>::new(), None);
        let (mut seen, mut gone, mut unreadable) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut descriptors = self.descriptors;
        let below = self.cgroups.range_mut(root.clone()..).take_while(|(path, _)| path.starts_with(&root));
        for (path, known) in below {
            let read = match (known.read(path, self.version, &mut descriptors, &mut self.buffer), &known.pod) {
                (Ok(read), _) => read,
                (Err(error), _) if error.is_vanished() => {
                    gone.push(path.clone());
                    continue;
                }
                (Err(error), Some(uid)) => {
                    unreadable.insert(uid.clone(), crate::pinner::chain(&error.into()));
                    continue;
                }
                (Err(error), None) => return Err(error.into()),
            };
            let Some(cpuset) = read else { continue };
            if self.version == Version::V2 && known.pod.is_some() && is_apart(&cpuset, ceiling.as_ref()) {
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
                    ceiling = Some(ceiling.map_or(effective.clone(), |all| all.intersection(&effective)));
                }
            }
        }
        gone.iter().for_each(|path| self.forget(path));
        let other_root = self.roots.iter().find(|other| **other != root && self.running_below(other) > 0).cloned();
        let ceiling = ceiling.filter(|cpus| !cpus.is_empty()).ok_or_else(|| {
            Error::NoCpusets(format!("no kubepods cgroup with a cpuset below {}", self.mount.display()))
        })?;
        let (version, full) = match self.version {
            Version::V1 => (placement::Version::V1, ceiling.clone()),
            Version::V2 => (placement::Version::V2, possible.clone()),
        };
        let hierarchy = placement::Hierarchy { version, ceiling, full };
        Ok(View { hierarchy, pods, seen, confined, unreadable, other_root })
    }
}

impl Known {
    /// Reads the cpuset; the files stay open where `descriptors` are left.
    fn read(
        &mut self,
        path: &Path,
        version: Version,
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

/// Descriptors of one [`CpusetFiles`].
const FILES: usize = 2;

/// A partition root, or below one (`cpuset.cpus.partition`): its CPUs are taken out of all others' above it already, and
/// whoever made it places what is in it. On v2 nothing else has CPUs that its ancestors lack.
fn is_apart(cpuset: &Cpuset, ceiling: Option<&CpuSet>) -> bool {
    ceiling.is_some_and(|ceiling| ceiling.is_disjoint(&cpuset.effective))
}

fn add(pods: &mut Vec<PodCgroups>, uid: &Uid, path: &Path, cpuset: Cpuset, ours: bool) {
    let at = pods.iter().rposition(|pod| pod.uid == *uid).unwrap_or_else(|| {
        pods.push(PodCgroups { uid: uid.clone(), cgroups: Vec::new() });
        pods.len() - 1
    });
    let cgroups = &mut pods[at].cgroups;
    let parent = path.ancestors().skip(1).find_map(|above| cgroups.iter().position(|cgroup| cgroup.path == above));
    let Cpuset { configured, effective } = cpuset;
    cgroups.push(Cgroup { path: path.to_owned(), parent, configured, effective, ours });
}
