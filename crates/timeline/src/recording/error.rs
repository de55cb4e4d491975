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
    #[error("less than a tenth of the disk of {} is free", .0.display())]
    NearlyFull(PathBuf),
    /// The path is a pipe, a socket or a device.
    #[error("{} is not a regular file; name a recording, or a directory with recordings", .0.display())]
    NotAFile(PathBuf),
    /// The file is larger than any recording.
    #[error("{} is larger than {} MiB; no recording is", .0.display(), LARGEST_FILE >> 20)]
    TooLarge(PathBuf),
    /// The file has no header of a recording.
    #[error("{} is not a recording of cpuwarden", .0.display())]
    NotARecording(PathBuf),
    /// The only header of the file is damaged, or incomplete.
    #[error("{} is damaged at its start, and no later part can be read alone; a recording has a part per {} seconds", .0.display(), super::segment::FRAMES)]
    Damaged(PathBuf),
    /// The directory has no recording.
    #[error("{} contains no recording (no files *.{})", .0.display(), super::wire::EXTENSION)]
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
        _ => "",
    }
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
