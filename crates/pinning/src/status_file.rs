//! Reason for which pinning is not in effect, in a file beside the checkpoint, for other processes.
//!
//! The file exists while an agent runs and does not write cpusets.

use std::path::Path;

use cgroupfs::node;
use serde::{Deserialize, Serialize};
use state_dir::{CheckedFile, Result};

use crate::report::PinningStatus;

const FILE: CheckedFile = CheckedFile {
    name: "pinning-status.json",
    magic: "cpuwarden-pinning-status-1",
    remedy: "Delete the file",
};

#[derive(Debug, Serialize, Deserialize)]
struct Status {
    /// An agent of an earlier boot cannot have removed its file.
    boot_id: Option<String>,
    not_in_effect: String,
}

/// Reason for which the running agent does not write cpusets; `None` if it does, or if no agent
/// runs.
///
/// # Errors
/// A file that cannot be read or is damaged.
pub fn not_in_effect(state_dir: &Path, proc_root: &Path) -> Result<Option<String>> {
    let status = FILE.read_of_this_boot(state_dir, proc_root, |status: &Status| &status.boot_id)?;
    Ok(status.map(|status| status.not_in_effect))
}

/// Writes the status, unless there is no state directory: an agent that only observes does not
/// create it.
///
/// # Errors
/// A state directory that cannot be written.
pub(crate) fn write(status: &PinningStatus, state_dir: &Path, proc_root: &Path) -> Result<()> {
    let PinningStatus::Observing(reason) = status else { return remove(state_dir) };
    if !state_dir.exists() {
        return Ok(());
    }
    let status = Status { boot_id: node::boot_id(proc_root), not_in_effect: reason.clone() };
    FILE.write(state_dir, &status)
}

/// Deletes the file.
///
/// # Errors
/// A state directory that cannot be written.
pub(crate) fn remove(state_dir: &Path) -> Result<()> {
    FILE.remove(state_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_that_of_this_boot_and_of_no_directory_of_its_own() {
        let (place, proc_root) = (tempfile::tempdir().unwrap(), Path::new("/proc"));
        let observing = PinningStatus::Observing("an obstacle".to_owned());
        let missing = place.path().join("state");
        write(&observing, &missing, proc_root).unwrap();
        assert!(!missing.exists());
        let read = |proc_root| not_in_effect(place.path(), proc_root).unwrap();
        write(&observing, place.path(), proc_root).unwrap();
        assert_eq!(read(proc_root).as_deref(), Some("an obstacle"));
        assert_eq!(read(Path::new("/nowhere")), None, "another boot");
        write(&PinningStatus::Enforcing, place.path(), proc_root).unwrap();
        assert_eq!(read(proc_root), None);
        std::fs::write(FILE.path(place.path()), "text").unwrap();
        let error = not_in_effect(place.path(), proc_root).unwrap_err().to_string();
        assert!(error.contains("pinning-status.json"), "{error}");
    }
}
