//! Carries out one step on the kernel: write and read back, or verify.

use std::path::Path;

use cgroupfs::{control, cpuset};
use kernel_text::{CgroupVersion, CpuSet};
use placement::Step;
use rustix::io::Errno;

use crate::nested::{self, NarrowedCpusets};
use crate::{Error, Result};

/// Maximum number of retries after a child cgroup kept a v1 cpuset from shrinking (EBUSY). A
/// container that creates cgroups all the time adds a few between the listing and the write.
const ATTEMPTS: usize = 8;

/// Carries out a step. Releases and grants write nothing. `narrowed` records the cpusets narrowed
/// below a v1 cgroup.
///
/// # Errors
/// A failed kernel operation, or [`Error::NotEffective`] if the effective CPUs differ from the
/// step's.
pub(crate) fn carry_out(
    step: &Step,
    version: CgroupVersion,
    narrowed: &mut NarrowedCpusets,
) -> Result<()> {
    match step {
        Step::Write { path, cpus, effective, .. } => {
            match version {
                CgroupVersion::V1 => write_v1(path, cpus, narrowed)?,
                CgroupVersion::V2 => write(path, cpus)?,
            }
            verify(path, effective, version)
        }
        Step::Verify { path, effective, .. } => verify(path, effective, version),
        Step::Release { .. } | Step::Grant { .. } => Ok(()),
    }
}

fn verify(path: &Path, wanted: &CpuSet, version: CgroupVersion) -> Result<()> {
    let found = cpuset::read(path, version)?.map(|cpuset| cpuset.effective).unwrap_or_default();
    if found == *wanted {
        return Ok(());
    }
    Err(Error::NotEffective { path: path.to_owned(), wanted: wanted.clone(), found })
}

fn write(path: &Path, cpus: &CpuSet) -> cgroupfs::Result<()> {
    control::write(&path.join(cpuset::CPUS), &cpus.to_string())
}

/// A v1 cpuset cannot shrink below its children's (EBUSY), and its children do not grow with it.
pub(crate) fn write_v1(path: &Path, cpus: &CpuSet, narrowed: &mut NarrowedCpusets) -> Result<()> {
    let before = nested::configured(path)?;
    for _ in 0..ATTEMPTS {
        match write(path, cpus) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                if nested::narrow(path, &before, cpus, narrowed) == 0 {
                    // Either more nested cgroups than the limit, or a process in a cpuset that
                    // would become empty.
                    return Err(error.into());
                }
            }
            done => {
                done?;
                if !cpus.is_subset(&before) {
                    nested::follow(path, &before, cpus, narrowed);
                }
                return Ok(());
            }
        }
    }
    Ok(write(path, cpus)?)
}
