//! The settings of a cgroup that are written: a type for each, with how it is read, written and
//! restored.

pub(crate) mod burst;
mod cpus;
mod idle;
pub(crate) mod quota;

use std::path::{Path, PathBuf};

use cgroupfs::{Hierarchy, control};
use kernel_text::CgroupVersion;
use state_dir::{Original, Setting, SettingKey, Written};

use crate::Result;

/// A cgroup in the hierarchy of a setting's controller.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) version: CgroupVersion,
}

impl Place {
    /// The place of a setting; `None` if its controller is not mounted.
    pub(crate) fn of(hierarchy: &Hierarchy, (path, setting): &SettingKey) -> Option<Self> {
        let mount = match setting {
            Setting::Idle | Setting::Quota | Setting::Burst => &hierarchy.cpu,
            Setting::Cpus => hierarchy.cpuset.as_ref()?,
        };
        Some(Self { directory: mount.join(path), version: hierarchy.version })
    }

    /// Reads a file; `None` if the kernel does not have it.
    pub(crate) fn read(&self, file: &str) -> Result<Option<String>> {
        Ok(control::read(&self.directory.join(file))?)
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        Ok(control::write(&self.directory.join(file), value)?)
    }
}

/// Access to one setting.
pub(crate) trait Access {
    /// Its file.
    fn file(&self, version: CgroupVersion) -> &'static str;

    /// Reads the current value; `None` if the kernel does not have the setting.
    fn read(&self, place: &Place) -> Result<Option<Original>> {
        let value = place.read(self.file(place.version))?;
        Ok(value.map(|value| Original { value, ..Original::default() }))
    }

    /// Writes a value that the checkpoint contains as `was`.
    fn write(&self, place: &Place, value: &str, _was: &Written) -> Result<()> {
        place.write(self.file(place.version), value)
    }

    /// Whether no other program has written the setting, judging by its current value.
    fn is_ours(&self, was: &Written, found: &str) -> bool {
        was.values().any(|value| value == found)
    }

    /// The value to restore from now on, after the setting was found like this. What another program
    /// has written is the original from then on.
    fn rebase(&self, was: &Written, found: Original, is_ours: bool, _: CgroupVersion) -> Original {
        if is_ours { was.original.clone() } else { found }
    }

    /// Restores the original value, unless another program has written the setting. `all_cpus`
    /// replaces an empty cpuset where the kernel refuses to empty it.
    fn restore(&self, place: &Place, was: &Written, _all_cpus: &str) -> Result<()> {
        match self.read(place)? {
            Some(now) if self.is_ours(was, &now.value) => {
                self.write(place, &was.original.value, was)
            }
            _ => Ok(()),
        }
    }
}

/// Access to a setting.
pub(crate) const fn access(setting: Setting) -> &'static dyn Access {
    match setting {
        Setting::Idle => &idle::Idle,
        Setting::Cpus => &cpus::Cpus,
        Setting::Quota => &quota::Quota,
        Setting::Burst => &burst::Burst,
    }
}

/// Whether the kernel has a setting of the cpu controller, by the cgroups below the mount: the root
/// of cgroup v2 has no settings.
pub(crate) fn is_available(setting: Setting, hierarchy: &Hierarchy) -> bool {
    let file = access(setting).file(hierarchy.version);
    let has = |directory: &Path| directory.join(file).exists();
    let children = cgroupfs::subdirectories(&hierarchy.cpu).unwrap_or_default();
    has(&hierarchy.cpu) || children.iter().any(|child| has(&hierarchy.cpu.join(&child.name)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::hierarchy;

    #[test]
    fn a_setting_is_available_if_a_cgroup_below_the_mount_has_it() {
        for (version, burst) in
            [(CgroupVersion::V1, "cpu.cfs_burst_us"), (CgroupVersion::V2, "cpu.max.burst")]
        {
            let dir = tempfile::tempdir().unwrap();
            let hierarchy = hierarchy(version, dir.path());
            let available =
                || [Setting::Idle, Setting::Burst].map(|one| is_available(one, &hierarchy));
            fs::create_dir_all(dir.path().join("kubepods/burstable")).unwrap();
            for (directory, file, expected) in [
                ("kubepods", "cpu.max", [false, false]),
                ("kubepods/burstable", burst, [false, false]),
                ("kubepods", "cpu.idle", [true, false]),
                ("kubepods", burst, [true, true]),
            ] {
                fs::write(dir.path().join(directory).join(file), "").unwrap();
                assert_eq!(available(), expected, "{directory}/{file}");
            }
        }
    }
}
