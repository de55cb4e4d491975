//! Output of commands.

use std::io::{self, Write as _};

/// Prints to standard output. Ignores a closed pipe, as with `head`.
pub fn show(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
