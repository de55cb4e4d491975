//! Faults to order.

use std::time::Duration;

/// How an answer to `/pods` goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is read and never answered.
    Hang,
    /// This status, with a short text.
    Status(u16),
    /// 200 and something that is no JSON.
    Garbage,
    /// 200 and JSON that is no list.
    NotAList,
    /// 200, and the connection breaks in the middle of the body.
    HalfBody,
    /// 200, and the body ends in the middle, as if it were whole.
    CutBody,
    /// 200, and the body comes in this many pieces with a pause before each.
    Slow {
        /// Pieces.
        pieces: usize,
        /// Pause before each.
        pause: Duration,
    },
    /// 200 and a body that never ends.
    Endless,
}
