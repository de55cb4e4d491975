//! Files that are replaced as a whole, with a checksum in their first line.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::Builder;

use crate::FileError;

/// Suffix of a file that is being written.
const SUFFIX: &str = ".new";

/// A file of the state directory. It is written next to the old one, synced and renamed, so that a
/// crash at any moment leaves the old or the new one.
#[derive(Debug, Clone, Copy)]
pub struct CheckedFile {
    /// Name of the file.
    pub name: &'static str,
    /// First word of the file: its format and version.
    pub magic: &'static str,
}

impl CheckedFile {
    /// Path of the file in a state directory.
    #[must_use]
    pub fn path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(self.name)
    }

    /// Reads the text; `None` if there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(&self, state_dir: &Path) -> Result<Option<String>, FileError> {
        let path = self.path(state_dir);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::on("read", path)(error)),
        }
    }

    /// The text after the first line.
    ///
    /// # Errors
    /// A description of the damage.
    pub fn body<'a>(&self, text: &'a str) -> Result<&'a str, String> {
        let (head, body) = text.split_once('\n').ok_or("only one line")?;
        if head == self.head(body) { Ok(body) } else { Err("checksum mismatch".to_owned()) }
    }

    /// The text of a file with this body.
    #[must_use]
    pub fn text(&self, body: &str) -> String {
        format!("{}\n{body}", self.head(body))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn write(&self, state_dir: &Path, body: &str) -> Result<(), FileError> {
        let temporary = state_dir.join(format!("{}{SUFFIX}", self.name));
        // A fixed name: what a crash left is overwritten. On an error, the file is removed.
        let mut new = Builder::new();
        new.prefix(self.name).suffix(SUFFIX).rand_bytes(0);
        let written = new.make_in(state_dir, |path| File::create(path)).and_then(|mut file| {
            file.write_all(self.text(body).as_bytes())?;
            file.as_file().sync_all()?;
            Ok(file)
        });
        let file = written.map_err(FileError::on("write", &temporary))?;
        let renamed = file.persist(self.path(state_dir)).map_err(|error| error.error);
        renamed.map_err(FileError::on("rename", &temporary))?;
        // Syncing the directory makes the rename survive a crash of the machine.
        let synced = File::open(state_dir).and_then(|directory| directory.sync_all());
        synced.map_err(FileError::on("sync", state_dir))
    }

    /// Deletes the file, if it exists.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn remove(&self, state_dir: &Path) -> Result<(), FileError> {
        let path = self.path(state_dir);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileError::on("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    fn head(&self, body: &str) -> String {
        format!("{} {:016x}", self.magic, fnv1a(body.as_bytes()))
    }
}

/// FNV-1a, 64 bits. Detects torn and edited files. It does not resist an attacker, who would need
/// root.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: CheckedFile = CheckedFile { name: "test.json", magic: "test-1" };

    #[test]
    fn a_written_file_is_read_back_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FILE.read(dir.path()).unwrap(), None);
        FILE.write(dir.path(), "{}").unwrap();
        let text = FILE.read(dir.path()).unwrap().unwrap();
        assert_eq!((FILE.body(&text), text.as_str()), (Ok("{}"), FILE.text("{}").as_str()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
        FILE.remove(dir.path()).unwrap();
        FILE.remove(dir.path()).unwrap();
        assert_eq!(FILE.read(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_leftover_is_overwritten_and_a_failed_write_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let entries = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        fs::write(dir.path().join("test.json.new"), "half of a longer text").unwrap();
        FILE.write(dir.path(), "{}").unwrap();
        assert_eq!(FILE.read(dir.path()).unwrap(), Some(FILE.text("{}")));
        assert_eq!(entries(), ["test.json"]);
        fs::remove_file(FILE.path(dir.path())).unwrap();
        fs::create_dir(FILE.path(dir.path())).unwrap();
        let error = FILE.write(dir.path(), "{}").unwrap_err().to_string();
        assert!(error.starts_with("cannot rename ") && error.ends_with("test.json.new"), "{error}");
        assert_eq!(entries(), ["test.json"], "the directory");
    }

    #[test]
    fn a_written_file_has_the_permissions_of_any_new_file() {
        let dir = tempfile::tempdir().unwrap();
        FILE.write(dir.path(), "{}").unwrap();
        File::create(dir.path().join("other")).unwrap();
        let permissions = |name| fs::metadata(dir.path().join(name)).unwrap().permissions();
        assert_eq!(permissions("test.json"), permissions("other"));
    }

    #[test]
    fn a_file_that_was_cut_or_changed_or_is_another_is_damaged() {
        let text = FILE.text("[1,2]");
        let other = CheckedFile { magic: "test-2", ..FILE }.text("[1,2]");
        for wrong in [text.replace("2]", "3]"), text[..text.len() - 1].to_owned(), other] {
            assert_eq!(FILE.body(&wrong), Err("checksum mismatch".to_owned()));
        }
        assert_eq!(FILE.body(""), Err("only one line".to_owned()));
    }

    #[test]
    fn an_error_names_the_operation_and_the_file() {
        let error = FILE.write(Path::new("/nowhere"), "").unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nowhere/test.json.new");
    }
}
