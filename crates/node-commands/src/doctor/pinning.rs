//! Checks whether `--pinning=enforce` could write the files it needs.

use std::io;
use std::path::Path;

use api::doctor::Finding;
use rustix::fs::{Access, access};

use super::examination::{Cgroups, Examination};

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    match &examination.cgroups {
        Ok(cgroups) if examination.options.enforces => vec![judge(examination, cgroups)],
        _ => Vec::new(),
    }
}

fn judge(examination: &Examination, cgroups: &Cgroups) -> Finding {
    let lacking = |what: &Path, error: io::Error| {
        Finding::lacking("pinning", format!("cannot write {}: {error}", what.display()))
    };
    let Some(mount) = &cgroups.hierarchy.cpuset else {
        return Finding::lacking("pinning", "no cpuset controller")
            .remedy("mount the cpuset controller");
    };
    for cpus in cgroups.roots.iter().map(|root| mount.join(root).join("cpuset.cpus")) {
        if let Err(error) = access(&cpus, Access::WRITE_OK) {
            return lacking(&cpus, error.into())
                .remedy("mount the host's /sys/fs/cgroup read-write, and run as root");
        }
    }
    let state_dir = &examination.options.state_dir;
    match may_be_written(state_dir) {
        Ok(()) => Finding::good("pinning", "can write cpusets and its state directory"),
        Err(error) => lacking(state_dir, error)
            .remedy("mount a persistent hostPath there, or set --state-dir"),
    }
}

/// Checks write access to the directory, or to the one in which it would be created.
fn may_be_written(directory: &Path) -> io::Result<()> {
    match directory.metadata() {
        Ok(found) if found.is_dir() => Ok(access(directory, Access::WRITE_OK)?),
        Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match directory.parent() {
            Some(parent) => may_be_written(parent),
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}
