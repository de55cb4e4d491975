//! The state directory with its lock and the drain request.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::{Drained, Error, Result};

/// Default path of the state directory.
pub const STATE_DIR: &str = "/var/lib/cpuwarden";

const LOCK: &str = "lock";
const DRAIN: &str = "drain";

/// While this exists, no other process on this node enforces. The kernel releases the lock when the
/// process ends.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock; creates the directory if missing.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds the lock, or a directory that cannot be written.
    pub fn take(state_dir: &Path) -> Result<Self> {
        fs::create_dir_all(state_dir).map_err(Error::state("make", state_dir))?;
        let path = state_dir.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::state("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(path)),
            Err(error) => Err(Error::state("lock", path)(error.into())),
        }
    }

    /// Whether this is the lock of that directory; a removed and recreated directory has another
    /// lock file.
    pub(crate) fn is_of(&self, state_dir: &Path) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::metadata(state_dir.join(LOCK)).map(identity).ok();
        there.is_some() && there == self.0.metadata().map(identity).ok()
    }
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
        fs::write(&self.0, "").map_err(Error::state("write", &self.0))
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
    fn one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("new");
        let lock = Lock::take(&state).unwrap();
        assert!(matches!(Lock::take(&state), Err(Error::Locked(_))));
        assert!(lock.is_of(&state));
        fs::remove_dir_all(&state).unwrap();
        assert!(!lock.is_of(&state));
        let again = Lock::take(&state).unwrap();
        assert!(again.is_of(&state) && !lock.is_of(&state));
        drop(again);
        Lock::take(&state).unwrap();
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
