//! A descriptor that stays open and is read from the start each time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{Error, Result};

/// One kernel file, open as long as its cgroup is known.
///
/// `pread` of an open descriptor costs a tenth of open/read/close. After rmdir every read fails
/// with ENODEV. An open descriptor does not block the rmdir.
#[derive(Debug)]
pub struct KeptFile(File);

impl KeptFile {
    /// Opens `directory/name` read-only; `None` if this kernel or this cgroup does not have the
    /// file.
    ///
    /// # Errors
    /// Any error except "no such file".
    pub fn open(directory: &Path, name: &str) -> Result<Option<Self>> {
        Self::open_path(&directory.join(name))
    }

    /// The same by the file's path.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_path(path: &Path) -> Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", path)(error)),
        }
    }

    /// Reads the whole file into `buffer` and returns the bytes; the buffer grows only if the file
    /// is larger.
    ///
    /// # Errors
    /// The kernel's error; ENODEV after the cgroup was removed (see [`crate::is_vanished`]).
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if buffer.is_empty() {
            buffer.resize(4096, 0);
        }
        loop {
            let length = self.0.read_at(buffer, 0)?;
            if length < buffer.len() {
                return Ok(&buffer[..length]);
            }
            buffer.resize(buffer.len() * 2, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_is_the_whole_file_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "one").unwrap();
        let file = KeptFile::open(dir.path(), "f").unwrap().unwrap();
        let mut buffer = Vec::new();
        assert_eq!(file.read(&mut buffer).unwrap(), b"one");
        std::fs::write(dir.path().join("f"), vec![b'x'; 10_000]).unwrap();
        assert_eq!(file.read(&mut buffer).unwrap().len(), 10_000);
        std::fs::write(dir.path().join("f"), "").unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), b"");
    }

    #[test]
    fn a_file_that_the_kernel_does_not_have_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(KeptFile::open(dir.path(), "cpu.stat.local").unwrap().is_none());
    }
}
