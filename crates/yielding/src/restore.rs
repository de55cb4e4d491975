//! Restores the original values of a checkpoint.

use std::path::Path;
use std::time::{Duration, Instant};

use state_dir::{Lock, Setting, SettingKey, Writer, YieldingCheckpoint};

use crate::config::ActorConfig;
use crate::setting::{Place, access};
use crate::{Error, Result};

/// Result of a restoration.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// The restored settings.
    pub(crate) done: Vec<Setting>,
    /// The settings that could not be restored; they stay in the checkpoint.
    pub(crate) failed: Vec<(Setting, Error)>,
}

/// Restores the written settings that `is_due` selects, children before their parents: a parent's
/// quota must not shrink below a child's. Bursts come last: the original one may need the original
/// quota. What is restored, or belongs to a removed cgroup, leaves the checkpoint.
pub(crate) fn restore_where(
    checkpoint: &mut YieldingCheckpoint,
    config: &ActorConfig,
    is_due: impl Fn(&SettingKey) -> bool,
) -> Restored {
    let ActorConfig { hierarchy, resizes, .. } = config;
    let all_cpus = config.all_cpus();
    let mut restored = Restored::default();
    let due = checkpoint.written.keys().rev().filter(|key| is_due(key)).cloned();
    let (bursts, others): (Vec<_>, Vec<_>) = due.partition(|key| key.1 == Setting::Burst);
    for key in others.into_iter().chain(bursts) {
        let Some(was) = checkpoint.written.remove(&key) else { continue };
        let Some(place) = Place::of(hierarchy, &key) else { continue };
        if !cgroupfs::inode(&place.directory).is_ok_and(|inode| inode == was.inode) {
            if key.1 == Setting::Burst {
                resizes.remove(&key.0);
            }
            continue;
        }
        let one = || access(key.1).restore(&place, &was, &all_cpus);
        let restored_one = match key.1 {
            Setting::Burst => resizes.restore(&key.0, one),
            Setting::Quota => resizes.hold(one),
            Setting::Idle | Setting::Cpus => one(),
        };
        match restored_one {
            Ok(()) => restored.done.push(key.1),
            Err(error) if error.is_vanished() => {}
            Err(error) => {
                restored.failed.push((key.1, error));
                checkpoint.written.insert(key, was);
            }
        }
    }
    restored
}

/// Whether an earlier process left settings to restore.
///
/// # Errors
/// A checkpoint that cannot be read.
pub fn leftovers(state_dir: &Path, proc_root: &Path) -> Result<bool> {
    Ok(!YieldingCheckpoint::read(state_dir, proc_root)?.written.is_empty())
}

/// Restores what an earlier process left; waits up to `timeout` for a running agent to end or to
/// drain. Returns the number of restored settings.
///
/// # Errors
/// A lock or checkpoint that cannot be used, or the first setting that could not be restored.
pub fn restore(config: &ActorConfig, timeout: Duration) -> Result<usize> {
    let ActorConfig { state_dir, proc_root, .. } = config;
    let _lock = Lock::wait(state_dir, Writer::Yielding, Instant::now() + timeout)?;
    let mut checkpoint = YieldingCheckpoint::read(state_dir, proc_root)?;
    let restored = restore_where(&mut checkpoint, config, |_| true);
    checkpoint.write(state_dir, proc_root)?;
    let first = restored.failed.into_iter().next();
    first.map_or(Ok(restored.done.len()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kernel_text::CgroupVersion;
    use state_dir::{Original, Written};

    use super::*;
    use crate::testing::config;

    #[test]
    fn bursts_are_restored_after_quotas() {
        use Setting::{Burst, Quota};
        let (dir, mut checkpoint) = (tempfile::tempdir().unwrap(), YieldingCheckpoint::default());
        let keys = ["a", "a/b"].map(|path| [Quota, Burst].map(|of| (path, of)));
        for (path, setting) in keys.into_iter().flatten() {
            let directory = dir.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(access(setting).file(CgroupVersion::V2)), path).unwrap();
            let written = Written {
                namespace: String::new(),
                pod: String::new(),
                inode: cgroupfs::inode(&directory).unwrap(),
                original: Original { value: "0".to_owned(), ..Original::default() },
                wrote: path.to_owned(),
                replaces: None,
            };
            checkpoint.written.insert((path.into(), setting), written);
        }
        let restored = restore_where(&mut checkpoint, &config(dir.path()), |_| true);
        assert_eq!(restored.done, [Quota, Quota, Burst, Burst]);
    }
}
