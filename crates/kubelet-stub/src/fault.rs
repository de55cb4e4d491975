//! Faults that a test can inject.

use std::time::Duration;

/// A fault of the response to `/pods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is read and never answered.
    Hang,
    /// This status, with a short text.
    Status(u16),
    /// 200 and a body that is not JSON.
    Garbage,
    /// 200 and JSON that is not a list.
    NotAList,
    /// 200, and the connection breaks in the middle of the body.
    HalfBody,
    /// 200, and the body ends in the middle as if it were complete.
    CutBody,
    /// 200, and the body arrives in pieces with a pause before each.
    Slow {
        /// Number of pieces.
        pieces: usize,
        /// Pause before each piece.
        pause: Duration,
    },
    /// 200 and a body that never ends.
    Endless,
}
