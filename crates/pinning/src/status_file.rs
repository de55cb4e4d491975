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
struct WrittenStatus {
    /// An agent of an earlier boot cannot have removed its file.
    boot_id: Option<String>,
    not_in_effect: String,
    /// Pods that would have CPUs of their own.
    #[serde(default)]
    planned: Vec<String>,
}

/// Reason for which the running agent does not write cpusets, and its plan; `None` if it does write
/// them, or if no agent runs.
///
/// # Errors
/// A file that cannot be read or is damaged.
pub fn not_in_effect(state_dir: &Path, proc_root: &Path) -> Result<Option<String>> {
    let status =
        FILE.read_of_this_boot(state_dir, proc_root, |status: &WrittenStatus| &status.boot_id)?;
    let text = |WrittenStatus { not_in_effect, planned, .. }| match &planned[..] {
        [] => not_in_effect,
        pods => format!("{not_in_effect}; planned: {}", pods.join(", ")),
    };
    Ok(status.map(text))
}

/// Writes the status and the plan, unless there is no state directory: an agent that only observes
/// does not create it.
///
/// # Errors
/// A state directory that cannot be written.
pub(crate) fn write(
    status: &PinningStatus,
    planned: &[String],
    state_dir: &Path,
    proc_root: &Path,
) -> Result<()> {
    let PinningStatus::Observing(reason) = status else { return remove(state_dir) };
    if !state_dir.exists() {
        return Ok(());
    }
    let (boot_id, planned) = (node::boot_id(proc_root), planned.to_vec());
    let status = WrittenStatus { boot_id, not_in_effect: reason.clone(), planned };
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
        let write = |status, planned: &[&str], place: &Path| {
            let planned: Vec<String> = planned.iter().map(|&pod| pod.to_owned()).collect();
            write(status, &planned, place, proc_root).unwrap();
        };
        write(&observing, &[], &missing);
        assert!(!missing.exists());
        let read = |proc_root| not_in_effect(place.path(), proc_root).unwrap();
        write(&observing, &[], place.path());
        assert_eq!(read(proc_root).as_deref(), Some("an obstacle"));
        assert_eq!(read(Path::new("/nowhere")), None, "another boot");
        write(&observing, &["shop/web LSE 0-1", "shop/db LSR 2"], place.path());
        let text = "an obstacle; planned: shop/web LSE 0-1, shop/db LSR 2";
        assert_eq!(read(proc_root).as_deref(), Some(text));
        write(&PinningStatus::Enforcing, &[], place.path());
        assert_eq!(read(proc_root), None);
        std::fs::write(FILE.path(place.path()), "text").unwrap();
        let error = not_in_effect(place.path(), proc_root).unwrap_err().to_string();
        assert!(error.contains("pinning-status.json"), "{error}");
    }
}
