//! The drain request, the message of `cpuwarden drain` to a running agent.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result, regular};

/// A request of `cpuwarden drain`: a running agent must restore what it wrote, and continue without
/// writing. The agent may write an answer into the same file.
#[derive(Debug, Clone)]
pub struct DrainRequest(PathBuf);

impl DrainRequest {
    /// The drain request of this state directory.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self(state_dir.join("drain"))
    }

    /// Whether the request exists. Anything but a regular file is none.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.0.symlink_metadata().is_ok_and(|found| found.is_file())
    }

    /// Makes the request. Creates the directory if missing.
    ///
    /// # Errors
    /// A state directory that cannot be written, or a file that is not a regular file.
    pub fn make(&self) -> Result<()> {
        if let Some(state_dir) = self.0.parent() {
            fs::create_dir_all(state_dir).map_err(Error::on("make", state_dir))?;
        }
        regular::overwrite(&self.0, b"")
    }

    /// Writes the agent's answer.
    ///
    /// # Errors
    /// A state directory that cannot be written, or a file that is not a regular file.
    pub fn answer<T: Serialize>(&self, answer: &T) -> Result<()> {
        let text = serde_json::to_vec(answer).map_err(Into::into);
        regular::overwrite(&self.0, &text.map_err(Error::on("write", &self.0))?)
    }

    /// The agent's answer to the last request, if any.
    #[must_use]
    pub fn answered<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&regular::read(&self.0, regular::REMEDY).ok()??).ok()
    }

    /// Withdraws the request: an agent that starts enforces again.
    pub fn withdraw(&self) {
        // The file may be missing.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regular::testing::{each_irregular, is_told};

    #[test]
    fn a_request_is_made_answered_and_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let request = DrainRequest::of(&dir.path().join("state"));
        request.withdraw();
        assert!(!request.exists());
        request.make().unwrap();
        assert!(request.exists());
        assert_eq!(request.answered::<u64>(), None);
        request.answer(&51).unwrap();
        assert_eq!(request.answered(), Some(51));
        request.make().unwrap();
        assert_eq!(request.answered::<u64>(), None, "an answer to an earlier request");
        request.withdraw();
        assert!(!request.exists());
    }

    #[test]
    fn only_a_regular_file_is_a_request() {
        let dir = tempfile::tempdir().unwrap();
        let request = DrainRequest::of(dir.path());
        each_irregular(&dir.path().join("drain"), |what| {
            assert!(!request.exists(), "{what}");
            assert_eq!(request.answered::<u64>(), None, "{what}");
            for error in [request.make().unwrap_err(), request.answer(&51).unwrap_err()] {
                assert!(is_told(&error), "{what}: {error}");
            }
        });
    }
}
