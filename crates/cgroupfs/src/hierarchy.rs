//! Detection of the machine's cgroup hierarchy from the directory alone.
//!
//! Neither `/sys/fs/cgroup/unified` nor a `0::` line in `/proc/PID/cgroup` proves v2: a hybrid
//! machine has both. The place of the cpu controller decides.

use std::fs;
use std::path::{Path, PathBuf};

use kernel_text::CgroupVersion;

use crate::{Error, Result};

/// The mounts that hold the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Version of the cpu controller's hierarchy.
    pub version: CgroupVersion,
    /// Whether this is a v1 machine that also mounts the unified hierarchy.
    pub hybrid: bool,
    /// Mount of the cpu controller (v2: of all controllers).
    pub cpu: PathBuf,
    /// Mount of cpuacct.
    pub cpuacct: Option<PathBuf>,
    /// Mount of cpuset.
    pub cpuset: Option<PathBuf>,
    /// Mount of memory.
    pub memory: Option<PathBuf>,
}

impl Hierarchy {
    /// Detects the hierarchy at `root`, usually `/sys/fs/cgroup`.
    ///
    /// # Errors
    /// [`Error::NoHierarchy`] or [`Error::NoCpuController`], each with the fix.
    pub fn detect(root: &Path) -> Result<Self> {
        if let Some(controllers) = controllers(root) {
            return match has_cpu(&controllers) {
                true => Ok(Self::v2(root.to_owned(), false)),
                false => Err(Error::NoCpuController { root: root.to_owned() }),
            };
        }
        let unified = root.join("unified");
        let unified_controllers = controllers(&unified);
        if let Some(cpu) = v1_mount(root, "cpu") {
            return Ok(Self {
                version: CgroupVersion::V1,
                hybrid: unified_controllers.is_some(),
                cpu,
                cpuacct: v1_mount(root, "cpuacct"),
                cpuset: v1_mount(root, "cpuset"),
                memory: v1_mount(root, "memory"),
            });
        }
        match unified_controllers {
            Some(controllers) if has_cpu(&controllers) => Ok(Self::v2(unified, true)),
            _ => Err(Error::NoHierarchy { root: root.to_owned() }),
        }
    }

    fn v2(root: PathBuf, hybrid: bool) -> Self {
        let some = || Some(root.clone());
        Self {
            version: CgroupVersion::V2,
            hybrid,
            cpuacct: some(),
            cpuset: some(),
            memory: some(),
            cpu: root,
        }
    }

    /// Whether the cpu controller's mount is a real cgroupfs, not a copy of its files. Only then
    /// are inodes cgroup ids.
    #[must_use]
    pub fn is_the_kernels(&self) -> bool {
        // include/uapi/linux/magic.h
        const CGROUP_MAGICS: [u64; 2] = [0x0027_e0eb, 0x6367_7270];
        rustix::fs::statfs(&self.cpu)
            .is_ok_and(|statfs| CGROUP_MAGICS.contains(&(statfs.f_type as u64)))
    }

    /// `v1`, `v2` or `hybrid`, as in `cpuwarden_kernel_info`.
    #[must_use]
    pub fn version_name(&self) -> &'static str {
        match (self.hybrid, self.version) {
            (true, _) => "hybrid",
            (false, CgroupVersion::V1) => "v1",
            (false, CgroupVersion::V2) => "v2",
        }
    }
}

fn controllers(mount: &Path) -> Option<String> {
    fs::read_to_string(mount.join("cgroup.controllers")).ok()
}

fn has_cpu(controllers: &str) -> bool {
    controllers.split_ascii_whitespace().any(|name| name == "cpu")
}

/// A v1 controller's mount: `cpu`, or a directory of several such as `cpu,cpuacct`.
fn v1_mount(root: &Path, controller: &str) -> Option<PathBuf> {
    let alone = root.join(controller);
    if alone.is_dir() {
        return Some(alone);
    }
    let mut together: Vec<PathBuf> =
        fs::read_dir(root).ok()?.flatten().map(|entry| entry.path()).collect();
    together.sort();
    together.into_iter().find(|path| {
        let names = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        names.contains(',') && names.split(',').any(|name| name == controller) && path.is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_unified_mount_is_v2() {
        let root = root(&[("cgroup.controllers", "cpuset cpu io memory\n")]);
        let found = Hierarchy::detect(root.path()).unwrap();
        assert_eq!((found.version, found.version_name()), (CgroupVersion::V2, "v2"));
        assert_eq!(found.cpu, root.path());
    }

    #[test]
    fn controllers_mounted_together_are_found() {
        let root = root(&[("cpu,cpuacct/cpu.shares", "1024"), ("cpuset/x", "")]);
        let found = Hierarchy::detect(root.path()).unwrap();
        assert_eq!(found.version_name(), "v1");
        assert_eq!(found.cpuacct, Some(root.path().join("cpu,cpuacct")));
        assert_eq!(found.memory, None);
    }

    #[test]
    fn a_unified_directory_beside_v1_does_not_prove_v2() {
        let root = root(&[("cpu/cpu.shares", "1024"), ("unified/cgroup.controllers", "hugetlb\n")]);
        let found = Hierarchy::detect(root.path()).unwrap();
        assert_eq!((found.version, found.version_name()), (CgroupVersion::V1, "hybrid"));
    }

    #[test]
    fn a_hybrid_machine_may_have_its_cpu_controller_on_v2() {
        let root = root(&[("memory/x", ""), ("unified/cgroup.controllers", "cpu io\n")]);
        let found = Hierarchy::detect(root.path()).unwrap();
        assert_eq!((found.version, found.cpu), (CgroupVersion::V2, root.path().join("unified")));
    }

    #[test]
    fn a_missing_hierarchy_is_reported_with_the_remedy() {
        let error = Hierarchy::detect(root(&[]).path()).unwrap_err().to_string();
        assert!(error.contains("--cgroup-root"), "{error}");
        let error = Hierarchy::detect(root(&[("cgroup.controllers", "io memory cpuset\n")]).path())
            .unwrap_err();
        assert!(matches!(error, Error::NoCpuController { .. }), "{error}");
    }
}
