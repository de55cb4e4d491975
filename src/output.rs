//! What commands print.

use std::io::{self, Write as _};

/// Prints to standard output. A reader that has left, as `head` does, is no error.
pub(crate) fn show(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
