//! Files of the state directory are regular files with a bounded size. Anything else in their place
//! is an error: a symbolic link is not followed, and a pipe without a peer does not block.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{Error, Result};

/// Maximum size of a file, bytes. The checkpoint of a pod has less than a kilobyte for each
/// container.
pub(crate) const MOST_BYTES: u64 = 16 << 20;

/// What the operator must do about a file that is none of the agent's.
pub(crate) const REMEDY: &str = "Delete it";

/// Reads a file; `None` if there is none.
///
/// # Errors
/// A file that cannot be read, that is not a regular file, or that is too large.
pub(crate) fn read(path: &Path, remedy: &'static str) -> Result<Option<Vec<u8>>> {
    let file = match open(OpenOptions::new().read(true), path, "read", remedy) {
        Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(Error::on("read", path))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(too_large(path, remedy));
    }
    Ok(Some(bytes))
}

/// Replaces the content of a file. Creates it if missing.
///
/// # Errors
/// A file that cannot be written, or that is not a regular file.
pub(crate) fn overwrite(path: &Path, text: &[u8]) -> Result<()> {
    let mut file = create(path, "write")?;
    let written = file.set_len(0).and_then(|()| file.write_all(text));
    written.map_err(Error::on("write", path))
}

/// Opens a file for writing, as it is. Creates it if missing.
///
/// # Errors
/// A file that cannot be written, or that is not a regular file.
pub(crate) fn create(path: &Path, operation: &'static str) -> Result<File> {
    let mut options = OpenOptions::new();
    open(options.create(true).truncate(false).write(true), path, operation, REMEDY)
}

/// The error about a file of more than [`MOST_BYTES`].
pub(crate) fn too_large(path: &Path, remedy: &'static str) -> Error {
    let reason = format!("it has more than {} MiB", MOST_BYTES >> 20);
    Error::Damaged { path: path.to_owned(), reason, remedy }
}

fn open(
    options: &mut OpenOptions,
    path: &Path,
    operation: &'static str,
    remedy: &'static str,
) -> Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let not_regular = || {
        let reason = "it is not a regular file".to_owned();
        Error::Damaged { path: path.to_owned(), reason, remedy }
    };
    match options.custom_flags(flags).open(path) {
        Ok(file) => match file.metadata().map_err(Error::on(operation, path))?.is_file() {
            true => Ok(file),
            false => Err(not_regular()),
        },
        // A symbolic link; a directory; a socket, or a pipe that nobody reads.
        Err(error) if is_of_another_type(&error) => Err(not_regular()),
        Err(error) => Err(Error::on(operation, path)(error)),
    }
}

fn is_of_another_type(error: &io::Error) -> bool {
    let types = [Errno::LOOP, Errno::ISDIR, Errno::NXIO];
    types.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
pub(crate) mod testing {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// Puts each type of file in the place of `path` that is not a regular file, and calls `check`.
    /// A symbolic link points to a file that must stay as it is.
    pub(crate) fn each_irregular(path: &Path, mut check: impl FnMut(&str)) {
        let target: PathBuf = path.with_file_name("target");
        std::fs::write(&target, "kept").unwrap();
        symlink(&target, path).unwrap();
        check("a symbolic link");
        assert_eq!(std::fs::read(&target).unwrap(), b"kept");
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(&target).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
        check("a pipe");
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
        check("a directory");
        std::fs::remove_dir(path).unwrap();
    }

    /// Whether the error says what is wrong with the file, and what to do.
    pub(crate) fn is_told(error: &Error) -> bool {
        let text = error.to_string();
        text.contains("it is not a regular file. ") && !text.ends_with(". ")
    }
}
