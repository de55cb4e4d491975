//! State that survives a crash: every written setting with its original value. One file, replaced
//! atomically, with a checksum in its first line; and the lock of the acting process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::Restricted;
use cgroupfs::{Hierarchy, node};
use serde::{Deserialize, Serialize};
use state_dir::{CheckedFile, FileError, Lock};

use crate::resize::Resizes;
use crate::setting::{self, Kind, Original};
use crate::{Error, Result};

const FILE: CheckedFile = CheckedFile { name: "yields.json", magic: "cpuwarden-yields-1" };
const LOCK: &str = "yield.lock";

/// Takes the lock; while it is held, no other process on this node restricts best-effort pods.
///
/// # Errors
/// [`Error::Locked`] if another process holds it, or a directory that cannot be written.
pub fn take_lock(state_dir: &Path) -> Result<Lock> {
    Lock::take(state_dir, LOCK)?.ok_or_else(|| Error::Locked(state_dir.join(LOCK)))
}

/// A written setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    /// Namespace of the pod; empty if the pod was not known.
    #[serde(default)]
    pub(crate) namespace: String,
    /// Name of the pod; empty if it was not known.
    #[serde(default)]
    pub(crate) pod: String,
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
    /// Whether no other program has written the setting, judging by its current value.
    pub(crate) fn is_ours(&self, kind: Kind, found: &str) -> bool {
        let is = |value: &str| value == found || kind == Kind::Burst && is_divided(found, value);
        is(&self.wrote) || self.replaces.as_deref().is_some_and(is)
    }

    /// As [`Self::is_ours`], for a restoration: a resize lowers a burst before the checkpoint
    /// knows, and the process may end in between.
    pub(crate) fn may_be_ours(&self, kind: Kind, found: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let is_lower = |wrote: &str| number(found) < number(wrote);
        let is_lowered = || {
            kind == Kind::Burst
                && number(found).is_some()
                && (is_lower(&self.wrote) || self.replaces.as_deref().is_some_and(is_lower))
        };
        self.is_ours(kind, found) || is_lowered()
    }

    /// The original burst beside a quota, microseconds, unless another program has written the
    /// burst since: then `found` is neither the original one, nor what a written quota left of it.
    pub(crate) fn burst(&self, found: u64) -> Option<u64> {
        let original = self.original.burst?;
        let quotas = [Some(&self.wrote), self.replaces.as_ref()].into_iter().flatten();
        let left = quotas.filter_map(|quota| Some(original.min(setting::quota_usec(quota)?)));
        let is = |usec: u64| usec == found || is_divided(&found.to_string(), &usec.to_string());
        std::iter::once(original).chain(left).any(is).then_some(original)
    }
}

/// Whether `found` is what kernels before 6.10 make of a burst: each write of `cpu.max` divides it
/// by 1000 (fixed by commit 49217ea147 of Linux). With the systemd driver a resize writes twice,
/// which leaves 0 of a burst below one second.
pub(crate) fn is_divided(found: &str, wrote: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let (Some(found), Some(wrote)) = (number(found), number(wrote)) else { return false };
    let divided = |usec: &u64| (*usec > 0).then_some(usec / 1000);
    std::iter::successors(Some(wrote), divided).skip(1).any(|usec| usec == found)
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
        let Some(text) = FILE.read(state_dir)? else { return Ok(Self::default()) };
        let damaged = |reason| Error::Checkpoint { path: FILE.path(state_dir), reason };
        let body = parse(&text).map_err(damaged)?;
        if body.boot_id != node::boot_id(proc_root) {
            return Ok(Self::default());
        }
        let written = body.written.into_iter().map(|(path, kind, was)| ((path, kind), was));
        Ok(Self { written: written.collect() })
    }

    /// Writes the checkpoint, or deletes it if nothing is written any more. A crash at any moment
    /// leaves the old or the new one.
    pub(crate) fn write(&self, state_dir: &Path, proc_root: &Path) -> Result<()> {
        if self.written.is_empty() {
            return Ok(FILE.remove(state_dir)?);
        }
        let written = self.written.iter();
        let written =
            written.map(|((path, kind), was)| (path.clone(), *kind, was.clone())).collect();
        let body = Body { boot_id: node::boot_id(proc_root), written };
        let body = serde_json::to_string(&body)
            .map_err(|error| FileError::on("write", FILE.path(state_dir))(error.into()))?;
        Ok(FILE.write(state_dir, &body)?)
    }

    /// Restores the written settings that `is_due` selects, children before their parents: a
    /// parent's quota must not shrink below a child's. Bursts come last: the original one may need
    /// the original quota. What is restored, or belongs to a removed cgroup, leaves the checkpoint.
    pub(crate) fn restore(
        &mut self,
        hierarchy: &Hierarchy,
        all_cpus: &str,
        resizes: &Resizes,
        is_due: impl Fn(&Key) -> bool,
    ) -> Restored {
        let mut restored = Restored::default();
        let due = self.written.keys().rev().filter(|key| is_due(key)).cloned();
        let (bursts, others): (Vec<Key>, Vec<Key>) = due.partition(|key| key.1 == Kind::Burst);
        for key in others.into_iter().chain(bursts) {
            let Some(was) = self.written.remove(&key) else { continue };
            let Some(directory) = directory(hierarchy, &key) else { continue };
            if !cgroupfs::inode(&directory).is_ok_and(|inode| inode == was.inode) {
                if key.1 == Kind::Burst {
                    resizes.remove(&key.0);
                }
                continue;
            }
            let restore = || setting::restore(&directory, key.1, hierarchy.version, &was, all_cpus);
            let restored_one = match key.1 {
                Kind::Burst => resizes.restore(&key.0, restore),
                Kind::Quota => resizes.hold(restore),
                Kind::Idle | Kind::Cpus => restore(),
            };
            match restored_one {
                Ok(()) => restored.done.push(key.1),
                Err(error) if error.is_vanished() => {}
                Err(error) => {
                    restored.failed.push((key.1, error));
                    self.written.insert(key, was);
                }
            }
        }
        restored
    }
}

/// Result of a restoration.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// The restored settings.
    pub(crate) done: Vec<Kind>,
    /// The settings that could not be restored; they stay in the checkpoint.
    pub(crate) failed: Vec<(Kind, Error)>,
}

/// Directory of a cgroup in the hierarchy of the setting's controller.
pub(crate) fn directory(hierarchy: &Hierarchy, (path, kind): &Key) -> Option<PathBuf> {
    match kind {
        Kind::Idle | Kind::Quota | Kind::Burst => Some(hierarchy.cpu.join(path)),
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

/// All settings in force, by cgroup.
///
/// # Errors
/// A checkpoint that cannot be read.
pub fn restricted(state_dir: &Path, proc_root: &Path) -> Result<Vec<Restricted>> {
    let checkpoint = Checkpoint::read(state_dir, proc_root)?;
    let shown = |((path, kind), was): (Key, Written)| Restricted {
        namespace: was.namespace,
        pod: was.pod,
        cgroup: path.display().to_string(),
        setting: kind.name().to_owned(),
        value: was.wrote,
        original: was.original.value,
    };
    Ok(checkpoint.written.into_iter().map(shown).collect())
}

fn parse(text: &str) -> std::result::Result<Body, String> {
    serde_json::from_str(FILE.body(text)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kernel_text::CgroupVersion;

    use super::*;
    use crate::testing::hierarchy;

    fn sample() -> Checkpoint {
        let original = Original { value: "0".into(), weight: Some("2".into()), burst: None };
        let (namespace, pod) = ("jobs".into(), "index-0".into());
        let wrote = "1".into();
        let written = Written { namespace, pod, inode: 7, original, wrote, replaces: None };
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
        assert_eq!((&*shown[0].namespace, &*shown[0].pod), ("jobs", "index-0"));
        Checkpoint::default().write(dir.path(), proc.path()).unwrap();
        assert!(!FILE.path(dir.path()).exists());
        assert!(!leftovers(dir.path(), proc.path()).unwrap());
    }

    #[test]
    fn a_damaged_checkpoint_is_an_error_with_a_remedy() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample().write(dir.path(), proc.path()).unwrap();
        let text = fs::read_to_string(FILE.path(dir.path())).unwrap();
        fs::write(FILE.path(dir.path()), text.replace("\"2\"", "\"9\"")).unwrap();
        let error = Checkpoint::read(dir.path(), proc.path()).unwrap_err().to_string();
        assert!(error.contains("checksum") && error.contains("Restart"), "{error}");
    }

    #[test]
    fn bursts_are_restored_after_quotas() {
        use Kind::{Burst, Quota};
        let (dir, mut checkpoint) = (tempfile::tempdir().unwrap(), Checkpoint::default());
        let hierarchy = hierarchy(CgroupVersion::V2, dir.path());
        let keys = ["a", "a/b"].map(|path| [Quota, Burst].map(|of| (path, of)));
        for (path, kind) in keys.into_iter().flatten() {
            let directory = dir.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(kind.file(CgroupVersion::V2)), path).unwrap();
            let original = Original { value: "0".to_owned(), ..Original::default() };
            let inode = cgroupfs::inode(&directory).unwrap();
            let written = sample().written.into_values().next().unwrap();
            let written = Written { inode, original, wrote: path.to_owned(), ..written };
            checkpoint.written.insert((path.into(), kind), written);
        }
        let restored = checkpoint.restore(&hierarchy, "", &Resizes::default(), |_| true);
        assert_eq!(restored.done, [Quota, Quota, Burst, Burst]);
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
    fn a_burst_may_have_been_divided_more_than_once() {
        let is = |found, wrote| is_divided(found, wrote);
        assert!(is("20", "20999") && is("0", "20999") && is("2", "2000000") && is("0", "2000000"));
        assert!(!is("20999", "20999") && !is("21", "20999") && !is("2", "20999"));
        assert!(!is("0", "0") && !is("", "20999") && !is("0", "max"));
    }

    #[test]
    fn one_holder_of_the_lock_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take_lock(dir.path()).unwrap();
        assert!(matches!(take_lock(dir.path()), Err(Error::Locked(_))));
        drop(lock);
        take_lock(dir.path()).unwrap();
    }
}
