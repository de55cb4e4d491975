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

/// The cgroups below kubepods in the hierarchy of the cpuset controller.
#[derive(Debug)]
pub(crate) struct PodTree {
    mount: PathBuf,
    version: Version,
    /// Tops as the operator named them, below the mount; empty: they are looked for.
    named_tops: Vec<String>,
    watch: Option<TreeWatch>,
    /// Parents before children: paths are ordered by component.
    cgroups: BTreeMap<PathBuf, Known>,
    overflowed: bool,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    /// The pod; none for the top and the QoS levels.
    pod: Option<Uid>,
    /// Made by the kubelet or the runtime, not by an application below its container.
    ours: bool,
    files: Option<CpusetFiles>,
    since: Instant,
}

/// All cpusets at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) hierarchy: placement::Hierarchy,
    pub(crate) pods: Vec<PodCgroups>,
    /// When each cgroup was first seen, and its inode.
    pub(crate) seen: BTreeMap<PathBuf, (Instant, u64)>,
    /// A QoS level to which somebody has given less than kubepods has, and what it has.
    pub(crate) confined: Option<(PathBuf, CpuSet)>,
}

impl PodTree {
    /// # Errors
    /// This machine has no cpuset controller.
    pub(crate) fn new(hierarchy: &Hierarchy, named_tops: Vec<String>) -> Result<Self> {
        let mount = hierarchy.cpuset.clone();
        let mount = mount.ok_or_else(|| Error::NoCpusets("no cpuset controller is mounted here".to_owned()))?;
        Ok(Self {
            mount,
            version: hierarchy.version,
            named_tops,
            // Without inotify what is new is found by the walk alone.
            watch: TreeWatch::new().ok(),
            cgroups: BTreeMap::new(),
            overflowed: false,
            buffer: Vec::new(),
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
        self.watch.is_none() || self.overflowed || self.cgroups.is_empty()
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
                TreeEvent::Populated(_) | TreeEvent::Set(_) => {}
                TreeEvent::Removed(path) => self.removed(&path),
                TreeEvent::Appeared(path) => self.appeared(&path, now),
            }
        }
    }

    /// Lists the whole tree.
    pub(crate) fn walk(&mut self, now: Instant) {
        self.overflowed = false;
        let gone: Vec<PathBuf> = self.cgroups.keys().filter(|path| !self.is_same(path)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
        for top in self.tops() {
            self.meet(&top, now);
        }
    }

    fn tops(&self) -> Vec<PathBuf> {
        if !self.named_tops.is_empty() {
            return self.named_tops.iter().map(|top| self.mount.join(top)).collect();
        }
        let hits = cgroupfs::locate(&self.mount, LOCATE_DEPTH, |name| path::kubepods_root(name).is_some());
        let is_top = |hit: &PathBuf| hit.strip_prefix(&self.mount).is_ok_and(|at| path::split(text(at)).is_some());
        hits.unwrap_or_default().into_iter().filter(is_top).collect()
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

    /// Takes in a cgroup and what is below it; one that nobody of Kubernetes would have named so is passed over.
    fn meet(&mut self, path: &Path, now: Instant) {
        let Ok(inode) = cgroupfs::inode(path) else { return };
        if self.cgroups.get(path).is_some_and(|known| known.inode != inode) {
            self.forget(path);
        }
        if !self.cgroups.contains_key(path) {
            let Some((pod, ours)) = self.place(path) else { return };
            if let Some(watch) = &mut self.watch
                && watch.watch(path).is_err()
            {
                self.overflowed = true;
            }
            self.cgroups.insert(path.to_owned(), Known { inode, pod, ours, files: None, since: now });
        }
        for child in subdirectories(path).unwrap_or_default() {
            self.meet(&path.join(child.name), now);
        }
    }

    /// Whose a cgroup is.
    fn place(&self, path: &Path) -> Option<(Option<Uid>, bool)> {
        let top = self.tops_of(path)?;
        let relative = text(path.strip_prefix(&top).ok()?);
        if relative.is_empty() {
            return Some((None, true));
        }
        let parsed = path::parse(relative)?;
        let ours = !matches!(parsed, CgroupPath::Nested { .. });
        Some((parsed.pod().map(|pod| Uid::from(&*pod.uid)), ours))
    }

    fn tops_of(&self, path: &Path) -> Option<PathBuf> {
        if let Some(top) = self.named_tops.iter().map(|top| self.mount.join(top)).find(|top| path.starts_with(top)) {
            return Some(top);
        }
        let relative = path.strip_prefix(&self.mount).ok()?;
        Some(self.mount.join(path::split(text(relative))?.top))
    }

    /// Reads every cpuset. What vanishes meanwhile is left out.
    ///
    /// # Errors
    /// No kubepods cgroup with a cpuset, or a file that cannot be read.
    pub(crate) fn view(&mut self, possible: &CpuSet) -> Result<View> {
        let (mut pods, mut ceiling) = (Vec::<PodCgroups>::new(), None::<CpuSet>);
        let (mut levels, mut confined) = (BTreeMap::<&Path, CpuSet>::new(), None);
        let (mut seen, mut gone) = (BTreeMap::new(), Vec::new());
        for (path, known) in &mut self.cgroups {
            let read = match known.read(path, self.version, &mut self.buffer) {
                Ok(read) => read,
                Err(error) if error.is_vanished() => {
                    gone.push(path.clone());
                    continue;
                }
                Err(error) => return Err(error.into()),
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
        let ceiling = ceiling.filter(|cpus| !cpus.is_empty()).ok_or_else(|| {
            Error::NoCpusets(format!("no kubepods cgroup with a cpuset below {}", self.mount.display()))
        })?;
        let (version, full) = match self.version {
            Version::V1 => (placement::Version::V1, ceiling.clone()),
            Version::V2 => (placement::Version::V2, possible.clone()),
        };
        Ok(View { hierarchy: placement::Hierarchy { version, ceiling, full }, pods, seen, confined })
    }
}

impl Known {
    fn read(&mut self, path: &Path, version: Version, buffer: &mut Vec<u8>) -> cgroupfs::Result<Option<Cpuset>> {
        // On v2 the controller may be enabled after the directory was made.
        if self.files.is_none() {
            self.files = CpusetFiles::open(path, version)?;
        }
        self.files.as_ref().map(|files| files.read(buffer)).transpose()
    }
}

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

/// Cgroup names below kubepods are ASCII.
fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
