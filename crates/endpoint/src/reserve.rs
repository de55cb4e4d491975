//! A descriptor in reserve, so that the probes are answered when the process has no other.

use std::fs::File;

/// A descriptor that is closed when a connection needs it.
pub(crate) struct Reserve(Option<File>);

impl Reserve {
    pub(crate) fn new() -> Self {
        let mut reserve = Self(None);
        reserve.refill();
        reserve
    }

    /// Opens the descriptor again, if possible.
    pub(crate) fn refill(&mut self) {
        if self.0.is_none() {
            self.0 = File::open("/dev/null").ok();
        }
    }

    /// Frees the descriptor; returns false if it was in use.
    pub(crate) fn release(&mut self) -> bool {
        self.0.take().is_some()
    }
}
