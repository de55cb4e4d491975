//! The cpuset of one cgroup, on both v1 and v2.

use std::path::{Path, PathBuf};

use kernel_text::{CgroupVersion, CpuSet};

use crate::{Error, KeptFile, Result};

/// File of the configured CPUs, on v1 and v2.
pub const CPUS: &str = "cpuset.cpus";

/// Configured and effective CPUs of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpuset {
    /// `cpuset.cpus`; empty on v2 if it was never written.
    pub configured: CpuSet,
    /// `cpuset.cpus.effective` (v2), `cpuset.effective_cpus` (v1).
    pub effective: CpuSet,
}

/// The two files, kept open read-only while the cgroup is known.
#[derive(Debug)]
pub struct CpusetFiles {
    directory: PathBuf,
    configured: KeptFile,
    effective: KeptFile,
    effective_name: &'static str,
}

impl CpusetFiles {
    /// Opens the files; `None` if the cgroup has no cpuset controller.
    ///
    /// # Errors
    /// A file that exists and cannot be opened.
    pub fn open(directory: &Path, version: CgroupVersion) -> Result<Option<Self>> {
        let effective_name = match version {
            CgroupVersion::V1 => "cpuset.effective_cpus",
            CgroupVersion::V2 => "cpuset.cpus.effective",
        };
        let files = (KeptFile::open(directory, CPUS)?, KeptFile::open(directory, effective_name)?);
        let (Some(configured), Some(effective)) = files else { return Ok(None) };
        Ok(Some(Self { directory: directory.to_owned(), configured, effective, effective_name }))
    }

    /// Reads both files.
    ///
    /// # Errors
    /// [`Error::is_vanished`] after the cgroup was removed.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Result<Cpuset> {
        Ok(Cpuset {
            configured: self.set(&self.configured, CPUS, buffer)?,
            effective: self.set(&self.effective, self.effective_name, buffer)?,
        })
    }

    fn set(&self, file: &KeptFile, name: &str, buffer: &mut Vec<u8>) -> Result<CpuSet> {
        let path = || self.directory.join(name);
        let text = file.read(buffer).map_err(|source| Error::io("read", &path())(source))?;
        let text = String::from_utf8_lossy(text);
        CpuSet::parse(&text).map_err(|source| Error::Parse { path: path(), source })
    }
}

/// Reads the cpuset of a cgroup once; `None` if it has no cpuset controller.
///
/// # Errors
/// As [`CpusetFiles::open`] and [`CpusetFiles::read`].
pub fn read(directory: &Path, version: CgroupVersion) -> Result<Option<Cpuset>> {
    CpusetFiles::open(directory, version)?.map(|files| files.read(&mut Vec::new())).transpose()
}

/// Reads what a cgroup asks for, and nothing else; `None` where it has no cpuset controller.
///
/// # Errors
/// As [`CpusetFiles::open`] and [`CpusetFiles::read`].
pub fn configured(directory: &Path) -> Result<Option<CpuSet>> {
    let Some(file) = KeptFile::open(directory, CPUS)? else { return Ok(None) };
    let path = || directory.join(CPUS);
    let mut buffer = Vec::new();
    let text = file.read(&mut buffer).map_err(|source| Error::io("read", &path())(source))?;
    let cpus = CpuSet::parse(&String::from_utf8_lossy(text))
        .map_err(|source| Error::Parse { path: path(), source })?;
    Ok(Some(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpusets_are_read_on_v1_and_v2_and_may_be_absent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), CgroupVersion::V2).unwrap(), None);
        for (name, text) in
            [(CPUS, "\n"), ("cpuset.cpus.effective", "0-3\n"), ("cpuset.effective_cpus", "1\n")]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let effective = |version| read(dir.path(), version).unwrap().unwrap().effective.to_string();
        assert_eq!(
            (effective(CgroupVersion::V1), effective(CgroupVersion::V2)),
            ("1".into(), "0-3".into())
        );
        assert!(read(dir.path(), CgroupVersion::V2).unwrap().unwrap().configured.is_empty());
    }
}
