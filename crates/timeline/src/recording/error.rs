//! Errors of reading and writing recordings.

use std::io;
use std::path::{Path, PathBuf};

/// Maximum size of a file, bytes: thousands of times that of a recording of ten minutes, and eight
/// times a file of a ring of a gigabyte.
pub(super) const LARGEST_FILE: u64 = 1 << 30;

/// A recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation of the file system failed.
    #[error("cannot {action} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The operation: a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process writes to the directory.
    #[error("{} is in use by another recorder; choose another directory", .0.display())]
    InUse(PathBuf),
    /// The disk is nearly full.
    #[error("less than a tenth of the disk of {} is free; free some of it, or choose another directory", .0.display())]
    NearlyFull(PathBuf),
    /// The path is a pipe, a socket or a device.
    #[error("{} is not a regular file; name a recording, or a directory with recordings", .0.display())]
    NotAFile(PathBuf),
    /// The file is larger than any recording.
    #[error("{} is larger than {} MiB; no recording is", .0.display(), LARGEST_FILE >> 20)]
    TooLarge(PathBuf),
    /// The file has no header of a recording.
    #[error("{} is not a recording of cpuwarden; name a file of cpuwarden snapshot, or a directory of cpuwarden record", .0.display())]
    NotARecording(PathBuf),
    /// The only header of the file is damaged, or incomplete.
    #[error("{} is damaged at its start, and no later part can be read alone; a recording has a part per {} seconds", .0.display(), super::segment::FRAMES)]
    Damaged(PathBuf),
    /// The directory has no recording.
    #[error("{} contains no recording (no files *.{}); name a directory of cpuwarden record, or a file", .0.display(), super::wire::EXTENSION)]
    NoRecording(PathBuf),
    /// The recording has a header, but no complete frame.
    #[error("{} contains no complete frame: all of it is incomplete or damaged", .0.display())]
    NoFrame(PathBuf),
    /// The recording was made by a later version.
    #[error(
        "{} has format version {version}, written by cpuwarden {agent}; this one reads versions up to {}: use a later cpuwarden",
        path.display(),
        super::wire::VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of its format.
        version: u32,
        /// Version of the agent that wrote it; `of a later version` if the header does not say.
        agent: String,
    },
    /// A frame cannot be written as JSON.
    #[error("cannot encode a frame: {0}")]
    Frame(#[from] serde_json::Error),
}

/// The remedy for a path that leads nowhere.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; correct the path",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; name a directory",
        io::ErrorKind::IsADirectory => "; name a file",
        io::ErrorKind::PermissionDenied => "; give this user access, or choose another path",
        io::ErrorKind::ReadOnlyFilesystem => "; choose a path that can be written",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some of the disk",
        _ => "",
    }
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The agent's log has these words while the recording of a node cannot be written.
    #[test]
    fn a_directory_that_cannot_be_written_is_answered_with_a_remedy() {
        // EACCES, EROFS, ENOSPC, EDQUOT, ENOENT, EEXIST, EISDIR
        for (code, words) in [
            (13, "; give this user access"),
            (30, "; choose a path that can be written"),
            (28, "; free some of the disk"),
            (122, "; free some of the disk"),
            (2, "; correct the path"),
            (17, "; name a directory"),
            (21, "; name a file"),
        ] {
            let error = Error::io("create", Path::new("/rec"))(io::Error::from_raw_os_error(code));
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
