//! State that survives a crash: every written setting with its original value. One file, replaced
//! atomically, with a checksum in its first line; and the lock of the acting process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cgroupfs::{Hierarchy, node};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::setting::{self, Kind, Original};
use crate::{Error, Result};

const FILE: &str = "yields.json";
const LOCK: &str = "yield.lock";
const MAGIC: &str = "cpuwarden-yields-1";

/// While this exists, no other process on this node restricts best-effort pods. The kernel releases
/// the lock when the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; creates the directory if missing.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it, or a directory that cannot be written.
    pub fn take(state_dir: &Path) -> Result<Self> {
        fs::create_dir_all(state_dir).map_err(Error::state("make", state_dir))?;
        let path = state_dir.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::state("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(path)),
            Err(error) => Err(Error::state("lock", path)(error.into())),
        }
    }
}

/// A written setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    /// Inode of the cgroup; together with the path it identifies the cgroup.
    pub(crate) inode: u64,
    pub(crate) original: Original,
    /// The value that was written last, or is about to be.
    pub(crate) wrote: String,
    /// The value that `wrote` replaces, until the write is known to have succeeded: a crash or a
    /// failed write leaves it in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<String>,
}

impl Written {
    /// Whether nobody else has written the setting, by its current value.
    pub(crate) fn is_ours(&self, found: &str) -> bool {
        self.wrote == found || self.replaces.as_deref() == Some(found)
    }
}

/// A cgroup's path below its controller's mount, and the setting.
pub(crate) type Key = (PathBuf, Kind);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    /// A checkpoint of another boot is void, since cgroups do not outlive a boot.
    boot_id: Option<String>,
    written: Vec<(PathBuf, Kind, Written)>,
}

/// All written settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) written: BTreeMap<Key, Written>,
}

impl Checkpoint {
    /// Reads the checkpoint of this boot; empty if there is none.
    pub(crate) fn read(state_dir: &Path, proc_root: &Path) -> Result<Self> {
        let path = state_dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::state("read", path)(error)),
        };
        let body = parse(&text).map_err(|reason| Error::Checkpoint { path, reason })?;
        if body.boot_id != node::boot_id(proc_root) {
            return Ok(Self::default());
        }
        let written = body.written.into_iter().map(|(path, kind, was)| ((path, kind), was));
        Ok(Self { written: written.collect() })
    }

    /// Writes the checkpoint, or deletes it if nothing is written any more. A crash at any moment
    /// leaves the old or the new one.
    pub(crate) fn write(&self, state_dir: &Path, proc_root: &Path) -> Result<()> {
        let path = state_dir.join(FILE);
        if self.written.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::state("remove", path)(error))
                }
                _ => Ok(()),
            };
        }
        let written = self.written.iter();
        let written =
            written.map(|((path, kind), was)| (path.clone(), *kind, was.clone())).collect();
        let body = Body { boot_id: node::boot_id(proc_root), written };
        let body = serde_json::to_string(&body)
            .map_err(|error| Error::state("write", &path)(error.into()))?;
        let temporary = state_dir.join(format!("{FILE}.new"));
        let text = format!("{}\n{body}", header(&body));
        let stored = File::create(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        stored.map_err(Error::state("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(Error::state("rename", &temporary))?;
        // Syncing the directory makes the rename survive a crash of the machine.
        let synced = File::open(state_dir).and_then(|directory| directory.sync_all());
        synced.map_err(Error::state("sync", state_dir))
    }

    /// Restores the written settings that `is_due` selects. What is restored, or belongs to a removed cgroup, leaves the checkpoint; returns the errors
    /// of the rest.
    pub(crate) fn restore(
        &mut self,
        hierarchy: &Hierarchy,
        all_cpus: &str,
        is_due: impl Fn(&Key) -> bool,
    ) -> (usize, Vec<Error>) {
        let (mut restored, mut errors) = (0, Vec::new());
        self.written.retain(|key, was| {
            if !is_due(key) {
                return true;
            }
            let Some(directory) = directory(hierarchy, key) else { return false };
            if !cgroupfs::inode(&directory).is_ok_and(|inode| inode == was.inode) {
                return false;
            }
            let (kind, version) = (key.1, hierarchy.version);
            match setting::restore(&directory, kind, version, was, all_cpus) {
                Ok(()) => restored += 1,
                Err(error) if error.is_vanished() => {}
                Err(error) => {
                    errors.push(error);
                    return true;
                }
            }
            false
        });
        (restored, errors)
    }
}

/// Directory of a cgroup in the hierarchy of the setting's controller.
pub(crate) fn directory(hierarchy: &Hierarchy, (path, kind): &Key) -> Option<PathBuf> {
    match kind {
        Kind::Idle | Kind::Quota => Some(hierarchy.cpu.join(path)),
        Kind::Cpus => hierarchy.cpuset.as_ref().map(|mount| mount.join(path)),
    }
}

/// Whether an earlier process left settings to restore.
///
/// # Errors
/// A checkpoint that cannot be read.
pub fn leftovers(state_dir: &Path, proc_root: &Path) -> Result<bool> {
    Ok(!Checkpoint::read(state_dir, proc_root)?.written.is_empty())
}

/// A setting in force, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restricted {
    /// Path of the cgroup below its controller's mount.
    pub cgroup: String,
    /// The setting.
    pub setting: Kind,
    /// Its value.
    pub value: String,
    /// Its value before; it will be restored.
    pub original: String,
}

/// All settings in force, by cgroup.
///
/// # Errors
/// A checkpoint that cannot be read.
pub fn restricted(state_dir: &Path, proc_root: &Path) -> Result<Vec<Restricted>> {
    let checkpoint = Checkpoint::read(state_dir, proc_root)?;
    let shown = |((path, kind), was): (Key, Written)| Restricted {
        cgroup: path.display().to_string(),
        setting: kind,
        value: was.wrote,
        original: was.original.value,
    };
    Ok(checkpoint.written.into_iter().map(shown).collect())
}

fn parse(text: &str) -> std::result::Result<Body, String> {
    let (head, body) = text.split_once('\n').ok_or("only one line")?;
    if head != header(body) {
        return Err("checksum mismatch".to_owned());
    }
    serde_json::from_str(body).map_err(|error| error.to_string())
}

fn header(body: &str) -> String {
    // FNV-1a, 64 bits. Detects torn and edited files.
    let sum = body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{MAGIC} {sum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Checkpoint {
        let original = Original { value: "0".into(), weight: Some("2".into()) };
        let written = Written { inode: 7, original, wrote: "1".into(), replaces: None };
        Checkpoint { written: [(("kubepods/besteffort/poda".into(), Kind::Idle), written)].into() }
    }

    #[test]
    fn a_written_checkpoint_is_read_back_and_an_empty_one_is_deleted() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample().write(dir.path(), proc.path()).unwrap();
        assert_eq!(Checkpoint::read(dir.path(), proc.path()).unwrap(), sample());
        assert!(leftovers(dir.path(), proc.path()).unwrap());
        let shown = restricted(dir.path(), proc.path()).unwrap();
        assert_eq!((shown.len(), &*shown[0].value, &*shown[0].original), (1, "1", "0"));
        Checkpoint::default().write(dir.path(), proc.path()).unwrap();
        assert!(!dir.path().join(FILE).exists());
        assert!(!leftovers(dir.path(), proc.path()).unwrap());
    }

    #[test]
    fn a_damaged_checkpoint_is_an_error_with_a_remedy() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample().write(dir.path(), proc.path()).unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        fs::write(dir.path().join(FILE), text.replace("\"2\"", "\"9\"")).unwrap();
        let error = Checkpoint::read(dir.path(), proc.path()).unwrap_err().to_string();
        assert!(error.contains("checksum") && error.contains("Restart"), "{error}");
    }

    #[test]
    fn a_checkpoint_of_another_boot_is_void() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample().write(dir.path(), proc.path()).unwrap();
        fs::create_dir_all(proc.path().join("sys/kernel/random")).unwrap();
        fs::write(proc.path().join("sys/kernel/random/boot_id"), "other\n").unwrap();
        assert_eq!(Checkpoint::read(dir.path(), proc.path()).unwrap(), Checkpoint::default());
    }

    #[test]
    fn one_holder_of_the_lock_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert!(matches!(Lock::take(dir.path()), Err(Error::Locked(_))));
        drop(lock);
        Lock::take(dir.path()).unwrap();
    }
}
