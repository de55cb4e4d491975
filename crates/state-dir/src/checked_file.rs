//! Files that are replaced as a whole, with a checksum in their first line.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cgroupfs::node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::Builder;

use crate::{Error, Result, regular};

/// Suffix of a file that is being written.
const SUFFIX: &str = ".new";

/// A file of the state directory with a value as JSON. It is written next to the old one, synced and renamed, so that a
/// crash at any moment leaves the old or the new one.
#[derive(Debug, Clone, Copy)]
pub struct CheckedFile {
    /// Name of the file.
    pub name: &'static str,
    /// First word of the file: its format and version.
    pub magic: &'static str,
    /// What the operator must do if it is damaged.
    pub remedy: &'static str,
}

impl CheckedFile {
    /// Path of the file in a state directory.
    #[must_use]
    pub fn path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(self.name)
    }

    /// Reads the value; `None` if there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged or too large, or is not a regular file.
    pub fn read<T: DeserializeOwned>(&self, state_dir: &Path) -> Result<Option<T>> {
        let (path, remedy) = (self.path(state_dir), self.remedy);
        let Some(bytes) = regular::read(&path, remedy)? else { return Ok(None) };
        let damaged = |reason| Error::Damaged { path, reason, remedy };
        let text = String::from_utf8(bytes).map_err(|error| error.utf8_error().to_string());
        text.and_then(|text| self.parse(&text)).map(Some).map_err(damaged)
    }

    /// As [`Self::read`], but `None` for a value of another boot, since cgroups do not outlive one.
    /// `boot_id` returns the value's `/proc/sys/kernel/random/boot_id`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_of_this_boot<T: DeserializeOwned>(
        &self,
        state_dir: &Path,
        proc_root: &Path,
        boot_id: impl FnOnce(&T) -> &Option<String>,
    ) -> Result<Option<T>> {
        let found: Option<T> = self.read(state_dir)?;
        Ok(found.filter(|value| *boot_id(value) == node::boot_id(proc_root)))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A description of the damage.
    pub fn parse<T: DeserializeOwned>(&self, text: &str) -> std::result::Result<T, String> {
        serde_json::from_str(self.body(text)?).map_err(|error| error.to_string())
    }

    /// The text after the first line.
    fn body<'a>(&self, text: &'a str) -> std::result::Result<&'a str, String> {
        let (head, body) = text.split_once('\n').ok_or("only one line")?;
        if head == self.head(body) { Ok(body) } else { Err("checksum mismatch".to_owned()) }
    }

    /// The text of a file with this JSON.
    #[must_use]
    pub fn text(&self, body: &str) -> String {
        format!("{}\n{body}", self.head(body))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// A state directory that cannot be written, or a value that [`Self::read`] would reject as too
    /// large.
    pub fn write<T: Serialize>(&self, state_dir: &Path, value: &T) -> Result<()> {
        let body = serde_json::to_string(value)
            .map_err(|error| Error::on("write", self.path(state_dir))(error.into()))?;
        let text = self.text(&body);
        if text.len() as u64 > regular::MOST_BYTES {
            return Err(regular::too_large(&self.path(state_dir), self.remedy));
        }
        let temporary = self.temporary(state_dir);
        // A fixed name: what a crash left is replaced. On an error, the file is removed.
        let mut new = Builder::new();
        new.prefix(self.name).suffix(SUFFIX).rand_bytes(0);
        let written = new.make_in(state_dir, create_anew).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            Ok(file)
        });
        let file = written.map_err(Error::on("write", &temporary))?;
        let renamed = file.persist(self.path(state_dir)).map_err(|error| error.error);
        renamed.map_err(Error::on("rename", &temporary))?;
        // Syncing the directory makes the rename survive a crash of the machine.
        let synced = File::open(state_dir).and_then(|directory| directory.sync_all());
        synced.map_err(Error::on("sync", state_dir))
    }

    /// Deletes the file, if it exists, and what a crash during a write left.
    ///
    /// # Errors
    /// A state directory that cannot be written.
    pub fn remove(&self, state_dir: &Path) -> Result<()> {
        for path in [self.temporary(state_dir), self.path(state_dir)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::on("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Path of the file while it is written.
    fn temporary(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{}{SUFFIX}", self.name))
    }

    fn head(&self, body: &str) -> String {
        format!("{} {:016x}", self.magic, fnv1a(body.as_bytes()))
    }
}

/// Creates a file in the place of any other, which may be a link or a pipe.
fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
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
    use crate::regular::testing::{each_irregular, is_told};

    const FILE: CheckedFile =
        CheckedFile { name: "test.json", magic: "test-1", remedy: "Delete it" };

    #[test]
    fn a_written_file_is_read_back_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FILE.read::<u64>(dir.path()).unwrap(), None);
        FILE.write(dir.path(), &51).unwrap();
        assert_eq!(FILE.read(dir.path()).unwrap(), Some(51));
        assert_eq!(fs::read_to_string(FILE.path(dir.path())).unwrap(), FILE.text("51"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
        FILE.remove(dir.path()).unwrap();
        FILE.remove(dir.path()).unwrap();
        assert_eq!(FILE.read::<u64>(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_leftover_is_overwritten_or_removed_and_a_failed_write_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let entries = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        fs::write(dir.path().join("test.json.new"), "half of a longer text").unwrap();
        FILE.write(dir.path(), &51).unwrap();
        assert_eq!(FILE.read(dir.path()).unwrap(), Some(51));
        assert_eq!(entries(), ["test.json"]);
        fs::write(dir.path().join("test.json.new"), "half of a longer text").unwrap();
        FILE.remove(dir.path()).unwrap();
        assert_eq!(entries(), [""; 0]);
        FILE.write(dir.path(), &51).unwrap();
        fs::remove_file(FILE.path(dir.path())).unwrap();
        fs::create_dir(FILE.path(dir.path())).unwrap();
        let error = FILE.write(dir.path(), &51).unwrap_err().to_string();
        assert!(error.starts_with("cannot rename ") && error.ends_with("test.json.new"), "{error}");
        assert_eq!(entries(), ["test.json"], "the directory");
    }

    #[test]
    fn a_written_file_has_the_permissions_of_any_new_file() {
        let dir = tempfile::tempdir().unwrap();
        FILE.write(dir.path(), &51).unwrap();
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
    fn a_damaged_file_is_an_error_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        for (text, reason) in
            [("half".to_owned(), "only one line"), (FILE.text("[]"), "invalid type")]
        {
            fs::write(FILE.path(dir.path()), text).unwrap();
            let error = FILE.read::<u64>(dir.path()).unwrap_err().to_string();
            assert!(error.contains(reason) && error.ends_with(". Delete it"), "{error}");
        }
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        each_irregular(&FILE.path(dir.path()), |what| {
            let error = FILE.read::<u64>(dir.path()).unwrap_err();
            assert!(is_told(&error), "{what}: {error}");
        });
    }

    #[test]
    fn a_file_that_is_too_large_is_neither_read_nor_written() {
        let dir = tempfile::tempdir().unwrap();
        let is_told =
            |error: Error| error.to_string().ends_with("it has more than 16 MiB. Delete it");
        let value = "x".repeat(16 << 20);
        assert!(is_told(FILE.write(dir.path(), &value).unwrap_err()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        File::create(FILE.path(dir.path())).unwrap().set_len(4 << 30).unwrap();
        assert!(is_told(FILE.read::<u64>(dir.path()).unwrap_err()));
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_a_new_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        each_irregular(&dir.path().join("test.json.new"), |what| {
            if what == "a directory" {
                FILE.write(dir.path(), &51).unwrap_err();
                return;
            }
            FILE.write(dir.path(), &51).unwrap();
            assert_eq!(FILE.read(dir.path()).unwrap(), Some(51), "{what}");
            // For the next one.
            fs::write(dir.path().join("test.json.new"), "").unwrap();
        });
    }

    #[test]
    fn a_value_of_another_boot_is_void() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let boot = proc.path().join("sys/kernel/random/boot_id");
        fs::create_dir_all(boot.parent().unwrap()).unwrap();
        fs::write(FILE.path(dir.path()), FILE.text(r#""a""#)).unwrap();
        for (id, expected) in [("a\n", true), ("b\n", false)] {
            fs::write(&boot, id).unwrap();
            let found = FILE.read_of_this_boot(dir.path(), proc.path(), |found| found).unwrap();
            assert_eq!(found.is_some(), expected, "boot {id}");
        }
    }

    #[test]
    fn an_error_names_the_operation_and_the_file() {
        let error = FILE.write(Path::new("/nowhere"), &51).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nowhere/test.json.new");
    }
}
