//! The lock of the process that enforces, and the drain request.

use std::fs;
use std::path::{Path, PathBuf};

use state_dir::{FileError, Lock};

use crate::{Drained, Error, Result};

const LOCK: &str = "lock";
const DRAIN: &str = "drain";

/// Takes the lock; while it is held, no other process on this node enforces.
///
/// # Errors
/// [`Error::Locked`] if another process holds the lock, or a directory that cannot be written.
pub fn take_lock(state_dir: &Path) -> Result<Lock> {
    Lock::take(state_dir, LOCK)?.ok_or_else(|| Error::Locked(state_dir.join(LOCK)))
}

/// Whether this is still the lock of that directory.
pub(crate) fn is_lock_of(lock: &Lock, state_dir: &Path) -> bool {
    lock.is_of(state_dir, LOCK)
}

/// A request of `cpuwarden drain`: a running agent must drain and continue without pinning. The
/// agent writes its answer into the same file.
#[derive(Debug, Clone)]
pub struct DrainRequest(PathBuf);

impl DrainRequest {
    /// The drain request of this state directory.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self(state_dir.join(DRAIN))
    }

    /// Whether the request exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Makes the request.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn make(&self) -> Result<()> {
        Ok(fs::write(&self.0, "").map_err(FileError::on("write", &self.0))?)
    }

    /// Writes the agent's answer, the result of the drain. A failure is only logged, because the
    /// state directory may be full.
    pub(crate) fn answer(&self, drained: &Drained) {
        if let Err(error) = serde_json::to_vec(drained)
            .map_err(Into::into)
            .and_then(|text| fs::write(&self.0, text))
        {
            tracing::warn!(path = %self.0.display(), %error, "failed to report the drained cpusets");
        }
    }

    /// The agent's answer to the last request, if any.
    pub(crate) fn answered(&self) -> Option<Drained> {
        serde_json::from_slice(&fs::read(&self.0).ok()?).ok()
    }

    /// Withdraws the request: an agent that starts enforces again.
    pub fn withdraw(&self) {
        // The file may be missing.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_of_the_lock_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take_lock(dir.path()).unwrap();
        assert!(matches!(take_lock(dir.path()), Err(Error::Locked(_))));
        assert!(is_lock_of(&lock, dir.path()));
    }

    #[test]
    fn a_request_is_made_answered_and_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let request = DrainRequest::of(dir.path());
        request.withdraw();
        assert!(!request.exists());
        request.make().unwrap();
        assert!(request.exists() && request.answered().is_none());
        let drained = Drained { written: 51, errors: vec!["one".to_owned()] };
        request.answer(&drained);
        assert_eq!(request.answered(), Some(drained));
        request.make().unwrap();
        assert_eq!(request.answered(), None, "an answer to an earlier request");
        request.withdraw();
        assert!(!request.exists());
    }
}
