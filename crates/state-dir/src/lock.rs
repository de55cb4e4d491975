//! Locks that the kernel releases when the process ends.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::{Error, Result, regular};

/// Time between two attempts to take a lock that another process holds.
const RETRY: Duration = Duration::from_millis(50);

/// A part of the agent that writes to cgroups. Each has its own lock: on a node, only one process
/// may write the settings of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Exclusive CPUs.
    Pinning,
    /// Best-effort pods that yield, and CPU limits that burst.
    Yielding,
}

impl Writer {
    fn path(self, state_dir: &Path) -> PathBuf {
        state_dir.join(match self {
            Self::Pinning => "lock",
            Self::Yielding => "yield.lock",
        })
    }
}

/// A held lock. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes a lock. Creates the directory if missing.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it, a directory that cannot be written, or a lock
    /// that is not a regular file.
    pub fn take(state_dir: &Path, writer: Writer) -> Result<Self> {
        fs::create_dir_all(state_dir).map_err(Error::on("make", state_dir))?;
        let path = writer.path(state_dir);
        let file = regular::create(&path, "open")?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(path)),
            Err(error) => Err(Error::on("lock", path)(error.into())),
        }
    }

    /// As [`Self::take`], but waits until `deadline` for the process that holds it.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wait(state_dir: &Path, writer: Writer, deadline: Instant) -> Result<Self> {
        loop {
            match Self::take(state_dir, writer) {
                Err(Error::Locked(_)) if Instant::now() < deadline => std::thread::sleep(RETRY),
                taken => return taken,
            }
        }
    }

    /// Whether another process would find this lock: a directory that was removed and created again
    /// has another lock file.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::symlink_metadata(&self.path).map(identity).ok();
        there.is_some() && there == self.file.metadata().map(identity).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regular::testing::{each_irregular, is_told};

    #[test]
    fn one_holder_of_each_lock_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("new");
        let take = || Lock::take(&state, Writer::Pinning);
        let lock = take().unwrap();
        let Err(error @ Error::Locked(_)) = take() else { panic!("two holders") };
        assert!(error.to_string().contains("/new/lock: only one agent"), "{error}");
        Lock::take(&state, Writer::Yielding).unwrap();
        assert!(lock.is_in_place());
        fs::remove_dir_all(&state).unwrap();
        assert!(!lock.is_in_place());
        let again = take().unwrap();
        assert!(again.is_in_place() && !lock.is_in_place());
        drop(again);
        take().unwrap();
    }

    #[test]
    fn only_a_regular_file_is_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        each_irregular(&dir.path().join("lock"), |what| {
            let error = Lock::take(dir.path(), Writer::Pinning).unwrap_err();
            assert!(is_told(&error), "{what}: {error}");
        });
    }

    #[test]
    fn a_lock_is_waited_for_until_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let wait = |time| Lock::wait(dir.path(), Writer::Yielding, Instant::now() + time);
        let lock = wait(Duration::ZERO).unwrap();
        assert!(matches!(wait(RETRY), Err(Error::Locked(_))));
        let holder = std::thread::spawn(move || {
            std::thread::sleep(RETRY);
            drop(lock);
        });
        wait(Duration::from_secs(60)).unwrap();
        holder.join().unwrap();
    }
}
