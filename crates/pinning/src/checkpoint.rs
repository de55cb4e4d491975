//! State that survives a crash: the grants, the transition in progress, and the original CPUs of
//! every written cgroup.
//!
//! A single file, replaced as a whole, with a checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use api::{Pin, Rejection};
use cgroupfs::node;
use placement::{Class, Current, Holding};
use serde::{Deserialize, Serialize};
use state_dir::{CheckedFile, FileError};

use crate::nested::Narrowed;
use crate::{Error, Result};

const FILE: CheckedFile = CheckedFile { name: "pins.json", magic: "cpuwarden-pins-1" };

/// The state of pinning on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
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
    /// because another process may see the hierarchy at another mount. [`Checkpoint::relocate`]
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

/// Serialized form of [`Current`].
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

impl Checkpoint {
    /// Path of the checkpoint in a state directory.
    pub(crate) fn path(state_dir: &Path) -> PathBuf {
        FILE.path(state_dir)
    }

    /// Reads the checkpoint of a state directory; `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn read(state_dir: &Path) -> Result<Option<Self>> {
        let Some(text) = FILE.read(state_dir)? else { return Ok(None) };
        let damaged = |reason| Error::Checkpoint { path: FILE.path(state_dir), reason };
        Self::parse(&text).map(Some).map_err(damaged)
    }

    /// Parses the text of a checkpoint file; the error describes the damage.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        serde_json::from_str(FILE.body(text)?).map_err(|error| error.to_string())
    }

    /// Like [`Checkpoint::read`], but `None` for a checkpoint of another boot, since cgroups do not
    /// outlive a boot.
    ///
    /// # Errors
    /// As [`Checkpoint::read`].
    pub fn of_this_boot(state_dir: &Path, proc_root: &Path) -> Result<Option<Self>> {
        let found = Self::read(state_dir)?;
        Ok(found.filter(|checkpoint| checkpoint.boot_id == node::boot_id(proc_root)))
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
        let body = serde_json::to_string(&Self { written, narrowed, ..self.clone() })
            .map_err(|error| FileError::on("write", FILE.path(state_dir))(error.into()))?;
        Ok(FILE.write(state_dir, &body)?)
    }

    /// Relocates the keys of written cgroups below this mount, whatever the mount was when they
    /// were written (version 0.1 stored absolute paths). A key matches by its longest suffix that
    /// is a cgroup here with the same inode. Returns the number of entries of `written` that were
    /// found; an entry without a match keeps its key.
    pub(crate) fn relocate(&mut self, mount: &Path) -> usize {
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

    /// Deletes the checkpoint.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn remove(state_dir: &Path) -> Result<()> {
        Ok(FILE.remove(state_dir)?)
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

impl From<&Current> for Held {
    fn from(current: &Current) -> Self {
        let words =
            |holding: &Holding| (class_name(holding.class).to_owned(), holding.cpus.to_string());
        Self {
            held: current
                .held
                .iter()
                .map(|(uid, holding)| (uid.to_string(), words(holding)))
                .collect(),
            demoted: current.demoted.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Held {
    /// Converts to the planner's form. Entries with an unknown class or an invalid CPU list are
    /// skipped: they cannot have been granted.
    #[must_use]
    pub fn to_current(&self) -> Current {
        let holding = |(class, cpus): &(String, String)| {
            let class =
                [Class::Lse, Class::Lsr].into_iter().find(|known| class_name(*known) == class)?;
            Some(Holding { class, cpus: cpus.parse().ok()? })
        };
        Current {
            held: self
                .held
                .iter()
                .filter_map(|(uid, words)| Some((uid.as_str().into(), holding(words)?)))
                .collect(),
            demoted: self.demoted.iter().map(|uid| uid.as_str().into()).collect(),
            ..Current::default()
        }
    }
}

/// Name of the class: `LSE`, `LSR`, `LS` or `BE`.
#[must_use]
pub const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Lse => "LSE",
        Class::Lsr => "LSR",
        Class::Share => "LS",
        Class::BestEffort => "BE",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn sample() -> Checkpoint {
        let holding = Holding { class: Class::Lsr, cpus: "0-1".parse().unwrap() };
        let current = Current {
            held: [("u".into(), holding)].into(),
            demoted: ["v".into()].into(),
            ..Current::default()
        };
        let written = [("/a".into(), WrittenCgroup { inode: 7, original: String::new() })].into();
        Checkpoint {
            committed: Held::from(&current),
            arrivals: [("u".into(), 3)].into(),
            written,
            ..Checkpoint::default()
        }
    }

    #[test]
    fn a_written_checkpoint_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Checkpoint::read(dir.path()).unwrap(), None);
        sample().write(dir.path(), Path::new("/m")).unwrap();
        let read = Checkpoint::read(dir.path()).unwrap().unwrap();
        assert_eq!(read, sample());
        assert_eq!(Held::from(&read.committed.to_current()), read.committed);
        Checkpoint::remove(dir.path()).unwrap();
        Checkpoint::remove(dir.path()).unwrap();
        assert_eq!(Checkpoint::read(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        sample().write(dir.path(), Path::new("/m")).unwrap();
        let path = FILE.path(dir.path());
        let text = fs::read_to_string(&path).unwrap();
        for wrong in [text.replace("0-1", "0-7"), text[..text.len() - 1].to_owned(), String::new()]
        {
            fs::write(&path, wrong).unwrap();
            assert!(matches!(Checkpoint::read(dir.path()), Err(Error::Checkpoint { .. })));
        }
    }

    #[test]
    fn grants_of_an_earlier_boot_are_ignored() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let boot = |id: &str| {
            fs::create_dir_all(proc.path().join("sys/kernel/random")).unwrap();
            fs::write(proc.path().join("sys/kernel/random/boot_id"), format!("{id}\n")).unwrap();
        };
        let checkpoint = Checkpoint { boot_id: Some("a".into()), ..sample() };
        checkpoint.write(dir.path(), Path::new("/m")).unwrap();
        let found = || Checkpoint::of_this_boot(dir.path(), proc.path()).unwrap();
        boot("a");
        assert_eq!(found(), Some(checkpoint));
        boot("b");
        assert_eq!(found(), None);
    }

    #[test]
    fn half_a_write_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        sample().write(dir.path(), Path::new("/m")).unwrap();
        fs::write(dir.path().join("pins.json.new"), "half").unwrap();
        assert_eq!(Checkpoint::read(dir.path()).unwrap(), Some(sample()));
    }

    #[test]
    fn cgroups_are_found_under_any_mount_path() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("kubepods/poda/kubepods/poda")).unwrap();
        let inode = |path: &str| cgroupfs::inode(&mount.path().join(path)).unwrap();
        let relocated = |key: &str, inode| {
            let written = [(key.into(), WrittenCgroup { inode, original: String::new() })].into();
            let mut checkpoint = Checkpoint { written, ..Checkpoint::default() };
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
        Checkpoint { written, ..Checkpoint::default() }
            .write(dir.path(), Path::new("/host/cg"))
            .unwrap();
        let read = Checkpoint::read(dir.path()).unwrap().unwrap();
        assert_eq!(read.written.into_keys().collect::<Vec<_>>(), [Path::new("kubepods/a")]);
    }

    #[test]
    fn checkpoints_of_version_0_1_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let body = r#"{"boot_id":null,"committed":{"held":{},"demoted":[]},"arrivals":{},"touched":{"/a":{"inode":7,"before":"0-1"}},"best_effort":[],"pins":{}}"#;
        fs::write(FILE.path(dir.path()), FILE.text(body)).unwrap();
        let read = Checkpoint::read(dir.path()).unwrap().unwrap();
        assert_eq!(
            read.written[Path::new("/a")],
            WrittenCgroup { inode: 7, original: "0-1".to_owned() }
        );
    }

    #[test]
    fn any_text_decodes_to_a_checkpoint_or_an_error() {
        corpus::run(
            env!("CARGO_MANIFEST_DIR"),
            "checkpoint",
            &[b"\"0-8191\"", b"null", b"{}", b"[]"],
            |bytes| {
                let Ok(body) = std::str::from_utf8(bytes) else { return };
                assert!(Checkpoint::parse(body).is_err(), "without a checksum");
                let text = FILE.text(body);
                // A CPU list of ten bytes can expand to a set of a kilobyte.
                let parse =
                    || Checkpoint::parse(&text).map(|read| (read.committed.to_current(), read));
                let Ok((current, read)) = corpus::within((64 << 10) + 256 * text.len(), parse)
                else {
                    return;
                };
                assert_eq!(Held::from(&current).to_current(), current);
                let written = serde_json::to_string(&read).unwrap();
                assert_eq!(Checkpoint::parse(&FILE.text(&written)).unwrap(), read);
                let cut = &text[..text.floor_char_boundary(text.len() - 1)];
                assert!(Checkpoint::parse(cut).is_err(), "cut");
                assert!(
                    Checkpoint::parse(&format!("{text} ")).is_err(),
                    "another text of the same meaning"
                );
            },
        );
    }
}
