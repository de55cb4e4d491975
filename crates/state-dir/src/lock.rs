//! Locks that the kernel releases when the process ends.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::FileError;

/// A held lock. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock with this file name, or returns `None` if another process holds it. Creates
    /// the directory if missing.
    ///
    /// # Errors
    /// A directory that cannot be written.
    pub fn take(state_dir: &Path, name: &str) -> Result<Option<Self>, FileError> {
        fs::create_dir_all(state_dir).map_err(FileError::on("make", state_dir))?;
        let path = state_dir.join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(FileError::on("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(FileError::on("lock", path)(error.into())),
        }
    }

    /// Whether this is the lock with this name in that directory; a removed and recreated directory
    /// has another lock file.
    #[must_use]
    pub fn is_of(&self, state_dir: &Path, name: &str) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::metadata(state_dir.join(name)).map(identity).ok();
        there.is_some() && there == self.0.metadata().map(identity).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("new");
        let take = || Lock::take(&state, "lock").unwrap();
        let lock = take().unwrap();
        assert!(take().is_none());
        assert!(Lock::take(&state, "other").unwrap().is_some());
        assert!(lock.is_of(&state, "lock") && !lock.is_of(&state, "other"));
        fs::remove_dir_all(&state).unwrap();
        assert!(!lock.is_of(&state, "lock"));
        let again = take().unwrap();
        assert!(again.is_of(&state, "lock") && !lock.is_of(&state, "lock"));
        drop(again);
        take().unwrap();
    }
}
