//! The checkpoint of pinning: the grants, the transition in progress, and the original CPUs of every
//! written cgroup.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use api::{Pin, Rejection};
use serde::{Deserialize, Serialize};

use crate::{CheckedFile, Result};

const FILE: CheckedFile = CheckedFile {
    name: "pins.json",
    magic: "cpuwarden-pins-1",
    remedy: "Run cpuwarden drain, which gives every pod all CPUs and deletes the file",
};

/// The state of pinning on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinningCheckpoint {
    /// `/proc/sys/kernel/random/boot_id`: a checkpoint of another boot is void, since cgroups do
    /// not outlive a boot.
    pub boot_id: Option<String>,
    /// Committed grants.
    pub committed: Held,
    /// Grants of the transition in progress; absent between transitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Held>,
    /// Order of arrival of the pods, by UID.
    pub arrivals: BTreeMap<String, u64>,
    /// Written cgroups with their original CPUs. On disk the key is the path below the mount,
    /// because another process may see the hierarchy at another mount. [`PinningCheckpoint::relocate`]
    /// makes the paths absolute again.
    #[serde(rename = "touched")]
    pub written: BTreeMap<PathBuf, WrittenCgroup>,
    /// Cpusets narrowed below v1 containers; keyed like `written`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub narrowed: BTreeMap<PathBuf, Narrowed>,
    /// Pods of the best-effort pool, which may use the CPUs of LSR pods, by UID.
    pub best_effort: BTreeSet<String>,
    /// Names and start times of the grants, by UID, for display.
    pub pins: BTreeMap<String, Pin>,
    /// Pods whose request was rejected, by UID, for display.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejections: BTreeMap<String, Rejection>,
}

/// Grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Class and CPUs by pod UID.
    pub held: BTreeMap<String, (String, String)>,
    /// Pods that lost a conflict.
    pub demoted: BTreeSet<String>,
}

/// A cgroup that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenCgroup {
    /// Inode of the cgroup; together with the path it identifies the cgroup.
    pub inode: u64,
    /// `cpuset.cpus` before the first write.
    #[serde(rename = "before")]
    pub original: String,
}

/// A nested cpuset below a v1 container that was narrowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Narrowed {
    /// Inode of the cgroup; together with the path it identifies the cgroup.
    pub inode: u64,
    /// `cpuset.cpus` as the application chose it.
    pub chosen: String,
    /// `cpuset.cpus` as written here. If it reads otherwise, the application has set it again.
    pub written: String,
}

impl PinningCheckpoint {
    /// Path of the checkpoint in a state directory.
    #[must_use]
    pub fn path(state_dir: &Path) -> PathBuf {
        FILE.path(state_dir)
    }

    /// Reads the checkpoint of a state directory; `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn read(state_dir: &Path) -> Result<Option<Self>> {
        FILE.read(state_dir)
    }

    /// Like [`PinningCheckpoint::read`], but `None` for a checkpoint of another boot, since cgroups do not
    /// outlive a boot.
    ///
    /// # Errors
    /// As [`PinningCheckpoint::read`].
    pub fn of_this_boot(state_dir: &Path, proc_root: &Path) -> Result<Option<Self>> {
        FILE.read_of_this_boot(state_dir, proc_root, |found: &Self| &found.boot_id)
    }

    /// Writes the checkpoint; a crash at any moment leaves the old or the new one. `mount` is the
    /// mount of the cpuset controller.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn write(&self, state_dir: &Path, mount: &Path) -> Result<()> {
        let key = |path: &PathBuf| path.strip_prefix(mount).unwrap_or(path).to_owned();
        let written = self.written.iter().map(|(path, was)| (key(path), was.clone())).collect();
        let narrowed = self.narrowed.iter().map(|(path, was)| (key(path), was.clone())).collect();
        FILE.write(state_dir, &Self { written, narrowed, ..self.clone() })
    }

    /// Relocates the keys of written cgroups below this mount, whatever the mount was when they
    /// were written (version 0.1 stored absolute paths). A key matches by its longest suffix that
    /// is a cgroup here with the same inode. Returns the number of entries of `written` that were
    /// found; an entry without a match keeps its key.
    pub fn relocate(&mut self, mount: &Path) -> usize {
        let place = |key: &PathBuf, inode| below(mount, key, inode).map(|path| mount.join(path));
        let narrowed = std::mem::take(&mut self.narrowed).into_iter();
        self.narrowed =
            narrowed.map(|(key, was)| (place(&key, was.inode).unwrap_or(key), was)).collect();
        let mut found = 0;
        let mut locate = |(key, was): (PathBuf, WrittenCgroup)| match place(&key, was.inode) {
            Some(path) => {
                found += 1;
                (path, was)
            }
            None => (key, was),
        };
        self.written = std::mem::take(&mut self.written).into_iter().map(&mut locate).collect();
        found
    }

    /// Whether a cgroup above a written one exists below this mount. Without any, the mount is
    /// another hierarchy than the one that was written.
    #[must_use]
    pub fn has_place_below(&self, mount: &Path) -> bool {
        let is_dir = |above: &Path| {
            !above.as_os_str().is_empty() && above.is_relative() && mount.join(above).is_dir()
        };
        self.written.keys().any(|key| key.ancestors().skip(1).any(is_dir))
    }

    /// Deletes the checkpoint.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn remove(state_dir: &Path) -> Result<()> {
        FILE.remove(state_dir)
    }
}

/// The longest suffix of `key` that is a directory with this inode below `mount`.
fn below(mount: &Path, key: &Path, inode: u64) -> Option<PathBuf> {
    let names: Vec<&OsStr> = key
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .map(Component::as_os_str)
        .collect();
    let ends = (0..names.len()).map(|from| names[from..].iter().collect::<PathBuf>());
    ends.into_iter().find(|end| cgroupfs::inode(&mount.join(end)).is_ok_and(|found| found == inode))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn cgroups_are_found_under_any_mount_path() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("kubepods/poda/kubepods/poda")).unwrap();
        let inode = |path: &str| cgroupfs::inode(&mount.path().join(path)).unwrap();
        let relocated = |key: &str, inode| {
            let written = [(key.into(), WrittenCgroup { inode, original: String::new() })].into();
            let mut checkpoint = PinningCheckpoint { written, ..PinningCheckpoint::default() };
            let found = checkpoint.relocate(mount.path());
            let path = checkpoint.written.into_keys().next().unwrap();
            (found, path.strip_prefix(mount.path()).unwrap_or(&path).display().to_string())
        };
        let pod = inode("kubepods/poda");
        for key in [
            "kubepods/poda",
            "/host/sys/fs/cgroup/kubepods/poda",
            "/sys/fs/cgroup/cpuset/kubepods/poda",
        ] {
            assert_eq!(relocated(key, pod), (1, "kubepods/poda".to_owned()), "{key}");
        }
        let nested = inode("kubepods/poda/kubepods/poda");
        let key = "/sys/fs/cgroup/kubepods/poda/kubepods/poda";
        assert_eq!(relocated(key, nested), (1, "kubepods/poda/kubepods/poda".to_owned()));
        assert_eq!(
            relocated("/sys/fs/cgroup/kubepods/podb", pod),
            (0, "/sys/fs/cgroup/kubepods/podb".to_owned())
        );
        assert_eq!(relocated("kubepods/poda", nested).0, 0, "another cgroup of the same name");
    }

    #[test]
    fn paths_on_disk_do_not_name_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        let written =
            [("/host/cg/kubepods/a".into(), WrittenCgroup { inode: 7, original: String::new() })]
                .into();
        PinningCheckpoint { written, ..PinningCheckpoint::default() }
            .write(dir.path(), Path::new("/host/cg"))
            .unwrap();
        let read = PinningCheckpoint::read(dir.path()).unwrap().unwrap();
        assert_eq!(read.written.into_keys().collect::<Vec<_>>(), [Path::new("kubepods/a")]);
    }

    #[test]
    fn checkpoints_of_version_0_1_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let body = r#"{"boot_id":null,"committed":{"held":{},"demoted":[]},"arrivals":{},"touched":{"/a":{"inode":7,"before":"0-1"}},"best_effort":[],"pins":{}}"#;
        fs::write(FILE.path(dir.path()), FILE.text(body)).unwrap();
        let read = PinningCheckpoint::read(dir.path()).unwrap().unwrap();
        assert_eq!(
            read.written[Path::new("/a")],
            WrittenCgroup { inode: 7, original: "0-1".to_owned() }
        );
    }
}
