//! The checkpoint of yielding: every written setting with its original value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cgroupfs::node;
use serde::{Deserialize, Serialize};

use crate::{CheckedFile, Result};

const FILE: CheckedFile = CheckedFile {
    name: "yields.json",
    magic: "cpuwarden-yields-1",
    remedy: "Restart the best-effort pods of this node and those that burst, which gives them new cgroups, and \
             delete the file",
};

/// A setting of a cgroup that yielding writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// `cpu.idle` of a pod.
    Idle,
    /// `cpuset.cpus` of a container.
    Cpus,
    /// Quota of a best-effort pod. Checkpoints of older agents may contain quotas above the limits
    /// of other pods, which are only restored.
    #[serde(alias = "scaled_quota")]
    Quota,
    /// `cpu.max.burst` of a pod or container.
    Burst,
}

impl Setting {
    /// Its name in the checkpoint and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Cpus => "cpus",
            Self::Quota => "quota",
            Self::Burst => "burst",
        }
    }
}

/// A cgroup's path below its controller's mount, and the setting.
pub type SettingKey = (PathBuf, Setting);

/// A value before the first write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Original {
    /// The setting's own value.
    pub value: String,
    /// The weight, for [`Setting::Idle`]: the kernel replaces it when `cpu.idle` changes in either
    /// direction (`sched_group_set_idle` in kernel/sched/fair.c).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The burst of another program, microseconds, for a quota: kernels before 6.10 divide it at
    /// each write of the quota, and all reject a quota below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

/// A written setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Namespace of the pod; empty if the pod was not known.
    #[serde(default)]
    pub namespace: String,
    /// Name of the pod; empty if it was not known.
    #[serde(default)]
    pub pod: String,
    /// Inode of the cgroup; together with the path it identifies the cgroup.
    pub inode: u64,
    /// The value before the first write.
    pub original: Original,
    /// The value that was written last, or is about to be.
    pub wrote: String,
    /// The value that `wrote` replaces, until the write is known to have succeeded: a crash or a
    /// failed write leaves it in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl Written {
    /// The values that the cgroup may have from this agent.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        [Some(&self.wrote), self.replaces.as_ref()].into_iter().flatten().map(String::as_str)
    }
}

/// All written settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct YieldingCheckpoint {
    /// The settings by cgroup.
    pub written: BTreeMap<SettingKey, Written>,
}

/// The checkpoint on disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    boot_id: Option<String>,
    written: Vec<(PathBuf, Setting, Written)>,
}

impl YieldingCheckpoint {
    /// Reads the checkpoint of this boot; empty if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn read(state_dir: &Path, proc_root: &Path) -> Result<Self> {
        let body = FILE.read_of_this_boot(state_dir, proc_root, |body: &Body| &body.boot_id)?;
        let written = body.map(|body| body.written).unwrap_or_default().into_iter();
        let written = written.map(|(path, setting, was)| ((path, setting), was)).collect();
        Ok(Self { written })
    }

    /// Writes the checkpoint, or deletes it if nothing is written any more. A crash at any moment
    /// leaves the old or the new one.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn write(&self, state_dir: &Path, proc_root: &Path) -> Result<()> {
        if self.written.is_empty() {
            return FILE.remove(state_dir);
        }
        let entry =
            |((path, setting), was): (&SettingKey, &Written)| (path.clone(), *setting, was.clone());
        let written = self.written.iter().map(entry).collect();
        FILE.write(state_dir, &Body { boot_id: node::boot_id(proc_root), written })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn sample() -> YieldingCheckpoint {
        let written = Written {
            namespace: "jobs".to_owned(),
            pod: "index-0".to_owned(),
            inode: 7,
            original: Original { value: "0".into(), weight: Some("2".into()), burst: None },
            wrote: "1".to_owned(),
            replaces: Some("0".to_owned()),
        };
        let key = ("kubepods/besteffort/poda".into(), Setting::Idle);
        YieldingCheckpoint { written: [(key, written)].into() }
    }

    #[test]
    fn a_written_checkpoint_is_read_back_and_an_empty_one_is_deleted() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let read = || YieldingCheckpoint::read(dir.path(), proc.path()).unwrap();
        sample().write(dir.path(), proc.path()).unwrap();
        assert_eq!(read(), sample());
        assert_eq!(
            sample().written.values().next().unwrap().values().collect::<Vec<_>>(),
            ["1", "0"]
        );
        YieldingCheckpoint::default().write(dir.path(), proc.path()).unwrap();
        assert!(!FILE.path(dir.path()).exists());
        assert_eq!(read(), YieldingCheckpoint::default());
    }

    #[test]
    fn an_edited_checkpoint_is_an_error_with_a_remedy() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample().write(dir.path(), proc.path()).unwrap();
        let text = fs::read_to_string(FILE.path(dir.path())).unwrap();
        fs::write(FILE.path(dir.path()), text.replace("\"2\"", "\"9\"")).unwrap();
        let error = YieldingCheckpoint::read(dir.path(), proc.path()).unwrap_err().to_string();
        assert!(error.contains("checksum") && error.contains("Restart"), "{error}");
    }
}
