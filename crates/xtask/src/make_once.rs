//! Files and directories that are made once and kept: tools of a checkout, programs of a cluster.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// Underlying error.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn new(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { path, source }
    }
}

/// Makes `directory/NAME`, unless `directory/NAME.version` says that it has this version. Returns
/// its path.
///
/// If two processes need it at the same time, the second waits. The remains of an interrupted or
/// failed `make` are removed before the next one.
pub(crate) fn make_once<E: From<FileError>>(
    directory: &Path,
    name: &str,
    version: &str,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    fs::create_dir_all(directory).map_err(FileError::new(directory))?;
    let lock_path = directory.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(FileError::new(&lock_path))?;
    lock.lock().map_err(FileError::new(&lock_path))?;
    let (path, stamp) = (directory.join(name), directory.join(format!("{name}.version")));
    if path.exists() && fs::read_to_string(&stamp).is_ok_and(|made| made == version) {
        return Ok(path);
    }
    remove(&stamp)?;
    remove(&path)?;
    make(&path)?;
    fs::write(&stamp, version).map_err(FileError::new(&stamp))?;
    Ok(path)
}

/// Removes a file or directory, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::new(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unexpected() -> FileError {
        FileError::new("thing")(io::Error::other("no network"))
    }

    #[test]
    fn a_thing_is_made_once_and_a_failed_one_again() {
        let directory = tempfile::tempdir().unwrap();
        let failed = make_once(directory.path(), "thing", "1", |path| {
            fs::write(path, "half").unwrap();
            Err(unexpected())
        });
        assert!(failed.is_err());
        let made = make_once(directory.path(), "thing", "1", |path| {
            assert!(!path.exists(), "the half of the failed one is removed");
            fs::write(path, "whole").map_err(FileError::new(path))
        });
        assert_eq!(fs::read_to_string(made.unwrap()).unwrap(), "whole");
        make_once::<FileError>(directory.path(), "thing", "1", |_| panic!("it is there")).unwrap();
    }

    #[test]
    fn a_thing_of_another_version_or_without_its_file_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut count = 0;
        let mut make = |version: &str| {
            let made = make_once(directory.path(), "thing", version, |path| {
                count += 1;
                fs::create_dir(path).map_err(FileError::new(path))
            });
            (made.unwrap(), count)
        };
        assert_eq!(make("1").1, 1);
        assert_eq!(make("2").1, 2);
        let (path, _) = make("2");
        fs::remove_dir(path).unwrap();
        assert_eq!(make("2").1, 3);
    }
}
