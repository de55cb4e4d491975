//! The table of victims as plain text, for pipes.

use crate::app::App;
use crate::view;

/// The current frame as text of at most `width` columns, without escape codes.
#[must_use]
pub fn table(app: &App, width: usize) -> String {
    let lines = view::plain_lines(app, width);
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}
