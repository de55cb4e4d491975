//! One step on the kernel: write, read back, or look once more.

use std::path::{Path, PathBuf};

use cgroupfs::{Version, control, cpuset, descendants};
use kernel_text::CpuSet;
use placement::Step;
use rustix::io::Errno;

use crate::{Error, Result};

/// New attempts after a child kept a v1 cpuset from shrinking: a container that makes cgroups all the time makes a few
/// between the look and the write.
const ATTEMPTS: usize = 8;
/// Cgroups below one that are taken within it.
const FIT_WITHIN: usize = 10_000;
/// Cgroups below one that grow with it.
const FOLLOW_WITHIN: usize = 256;

/// Carries out a step. Releases and grants are only said.
///
/// # Errors
/// What the kernel refused, or [`Error::NotEffective`] when it did not come to what was meant.
pub(crate) fn carry_out(step: &Step, version: Version) -> Result<()> {
    match step {
        Step::Write { path, cpus, effective, .. } => {
            match version {
                Version::V1 => write_v1(path, cpus)?,
                Version::V2 => write(path, cpus)?,
            }
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

fn write(path: &Path, cpus: &CpuSet) -> cgroupfs::Result<()> {
    control::write(&path.join(cpuset::CPUS), &cpus.to_string())
}

/// A v1 cpuset cannot shrink below its children's (EBUSY), and its children do not grow with it. What an application,
/// or a runtime that nobody here knows, has made below it is taken within it, and follows where it had the same CPUs.
fn write_v1(path: &Path, cpus: &CpuSet) -> Result<()> {
    let before = configured(path)?;
    for _ in 0..ATTEMPTS {
        match write(path, cpus) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => take_within(path, cpus),
            done => {
                done?;
                if !cpus.is_subset(&before) {
                    follow(path, &before, cpus);
                }
                return Ok(());
            }
        }
    }
    Ok(write(path, cpus)?)
}

/// Shrinks everything below to a part of `cpus`. What cannot be written shows when the cgroup itself is written.
fn take_within(path: &Path, cpus: &CpuSet) {
    let mut goals: Vec<(PathBuf, CpuSet, CpuSet)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for child in descendants(path, FIT_WITHIN) {
        // What vanishes meanwhile, or was never written, keeps nobody.
        let Some(own) = configured(&child).ok().filter(|own| !own.is_empty()) else { continue };
        let above = child.parent().and_then(|parent| places.get(parent)).map_or(cpus, |&at: &usize| &goals[at].2);
        let kept = own.intersection(above);
        let goal = if kept.is_empty() { above.clone() } else { kept };
        places.insert(child.clone(), goals.len());
        goals.push((child, own, goal));
    }
    for (child, own, goal) in goals.iter().filter(|(_, own, goal)| !goal.is_subset(own)) {
        let _ = write(child, &own.union(goal));
    }
    for (child, own, goal) in goals.iter().rev().filter(|(_, own, goal)| own != goal) {
        let _ = (own, write(child, goal));
    }
}

/// Children that had all of what their parent had get what it has now.
fn follow(path: &Path, before: &CpuSet, cpus: &CpuSet) {
    for child in descendants(path, FOLLOW_WITHIN) {
        if configured(&child).is_ok_and(|own| own == *before && !own.is_empty()) {
            let _ = write(&child, cpus);
        }
    }
}

fn configured(path: &Path) -> Result<CpuSet> {
    Ok(cpuset::read(path, Version::V1)?.map(|cpuset| cpuset.configured).unwrap_or_default())
}
