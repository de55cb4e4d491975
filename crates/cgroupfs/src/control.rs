//! Access to single control files: reads, and writes to existing files in a single write.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::{Error, Result};

/// Reads a control file, without the white space around its text; `None` if there is no such file.
///
/// # Errors
/// A file that cannot be read.
pub fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Writes `value` to an existing control file.
///
/// # Errors
/// The file does not exist or rejects the value, with the kernel's reason.
pub fn write(path: &Path, value: &str) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).open(path).map_err(Error::io("open for writing", path))?;
    file.write_all(value.as_bytes()).map_err(Error::io("write to", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_file_is_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu.max");
        assert!(write(&path, "max").is_err());
        assert!(!path.exists());
        assert_eq!(read(&path).unwrap(), None);
        fs::write(&path, "").unwrap();
        write(&path, "max").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("max"));
    }
}
