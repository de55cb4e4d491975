//! Model of the kernel's cpuset writes on cgroup v1 and v2, after `validate_change` and
//! `update_cpumasks_hier` of kernel/cgroup/cpuset.c. Independent of the crate's own model, and
//! stricter where kernels differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernel_text::{CgroupVersion, CpuSet};

pub(crate) const ROOT: &str = "kubepods";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errno {
    Eacces,
    Ebusy,
    Einval,
    Enospc,
}

#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) version: CgroupVersion,
    pub(crate) online: CpuSet,
    possible: CpuSet,
    /// `cpuset.cpus` by path; the parent of a cgroup is its longest prefix.
    configured: BTreeMap<PathBuf, CpuSet>,
}

impl Kernel {
    pub(crate) fn new(version: CgroupVersion, possible: CpuSet, online: CpuSet) -> Self {
        let root = if version == CgroupVersion::V1 { online.clone() } else { CpuSet::new() };
        Self { version, online, possible, configured: [(ROOT.into(), root)].into() }
    }

    /// Creates a cgroup as a runtime does: with its parent's set on v1, where nothing can run on an
    /// empty one; empty on v2.
    pub(crate) fn mkdir(&mut self, path: PathBuf) {
        let cpus = match self.version {
            CgroupVersion::V1 => self.configured[path.parent().expect("below the root")].clone(),
            CgroupVersion::V2 => CpuSet::new(),
        };
        self.configured.insert(path, cpus);
    }

    /// Creates a cgroup with mkdir alone: a v1 cpuset in which nothing can run.
    pub(crate) fn mkdir_unset(&mut self, path: PathBuf) {
        self.configured.insert(path, CpuSet::new());
    }

    pub(crate) fn rmdir(&mut self, under: &Path) {
        self.configured.retain(|path, _| !path.starts_with(under));
    }

    pub(crate) fn configured(&self, path: &Path) -> &CpuSet {
        &self.configured[path]
    }

    pub(crate) fn write(&mut self, path: &Path, cpus: &CpuSet) -> Result<(), Errno> {
        if cpus.is_empty() {
            return Err(Errno::Enospc);
        }
        let known = if self.version == CgroupVersion::V1 { &self.online } else { &self.possible };
        if !cpus.is_subset(known) {
            return Err(Errno::Einval);
        }
        if self.version == CgroupVersion::V1 {
            if self.children(path).any(|child| !child.is_subset(cpus)) {
                return Err(Errno::Ebusy);
            }
            if path
                .parent()
                .and_then(|parent| self.configured.get(parent))
                .is_some_and(|above| !cpus.is_subset(above))
            {
                return Err(Errno::Eacces);
            }
        }
        self.configured.insert(path.to_owned(), cpus.clone());
        Ok(())
    }

    pub(crate) fn effective(&self, path: &Path) -> CpuSet {
        let own = &self.configured[path];
        let parent = path.parent().filter(|parent| self.configured.contains_key(*parent));
        match self.version {
            CgroupVersion::V1 => own.intersection(&self.online),
            CgroupVersion::V2 => {
                let above =
                    parent.map_or_else(|| self.online.clone(), |parent| self.effective(parent));
                let within = own.intersection(&above);
                if within.is_empty() { above } else { within }
            }
        }
    }

    /// Takes a CPU offline. v1 removes it from all cpusets permanently, v2 only while it is
    /// offline.
    pub(crate) fn unplug(&mut self, cpu: u32) {
        self.online.remove(cpu);
        if self.version == CgroupVersion::V1 {
            for cpus in self.configured.values_mut() {
                cpus.remove(cpu);
            }
        }
    }

    pub(crate) fn plug(&mut self, cpu: u32) {
        self.online = self.online.union(&CpuSet::from_iter([cpu]));
    }

    /// Whether v1 would leave a cpuset without CPUs, and so move its tasks elsewhere.
    pub(crate) fn would_empty(&self, cpu: u32) -> bool {
        let only = CpuSet::from_iter([cpu]);
        self.version == CgroupVersion::V1 && self.configured.values().any(|cpus| *cpus == only)
    }

    pub(crate) fn paths(&self, under: &Path) -> Vec<PathBuf> {
        self.configured.keys().filter(|path| path.starts_with(under)).cloned().collect()
    }

    fn children<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a CpuSet> {
        self.configured
            .iter()
            .filter(move |(child, _)| child.parent() == Some(path))
            .map(|(_, cpus)| cpus)
    }
}
