//! One step on the kernel: write, read back, or look once more.

use std::path::Path;

use cgroupfs::{Version, control, cpuset};
use kernel_text::CpuSet;
use placement::Step;

use crate::{Error, Result};

/// Carries out a step. Releases and grants are only said.
///
/// # Errors
/// What the kernel refused, or [`Error::NotEffective`] when it did not come to what was meant.
pub(crate) fn carry_out(step: &Step, version: Version) -> Result<()> {
    match step {
        Step::Write { path, cpus, effective, .. } => {
            control::write(&path.join(cpuset::CPUS), &cpus.to_string())?;
            verify(path, effective, version)
        }
        Step::Verify { path, effective, .. } => verify(path, effective, version),
        Step::Release { .. } | Step::Grant { .. } => Ok(()),
    }
}

fn verify(path: &Path, wanted: &CpuSet, version: Version) -> Result<()> {
    let found = cpuset::read(path, version)?.map(|cpuset| cpuset.effective).unwrap_or_default();
    if found == *wanted {
        return Ok(());
    }
    Err(Error::NotEffective { path: path.to_owned(), wanted: wanted.clone(), found })
}
