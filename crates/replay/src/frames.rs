//! A recording as the view takes it.

use std::path::Path;

use api::Frame;
use console::Failure;
use timeline::recording::Recording;

/// Opens a file or a directory.
///
/// # Errors
/// The path cannot be read, holds no recording, or holds one of a later version.
pub(crate) fn open(path: &Path) -> Result<Recording, Failure> {
    Recording::open(path).map_err(|error| Failure::config(error.to_string()))
}

/// A recording for the view.
pub(crate) struct Frames(pub(crate) Recording);

impl top::Recording for Frames {
    fn span(&self) -> (u64, u64) {
        self.0.span()
    }

    fn frames(&mut self, after_ms: u64, until_ms: u64) -> Result<Vec<Frame>, String> {
        self.0.between(after_ms, until_ms).map_err(|error| error.to_string())
    }

    fn next_after(&self, at_ms: u64) -> Option<u64> {
        self.0.next_after(at_ms)
    }
}
