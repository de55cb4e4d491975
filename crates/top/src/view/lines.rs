//! Lines of a given width.

use crate::look::Look;
use crate::text;

/// Splits a text into at most `most` lines between words, and words that are longer than a line.
/// A mark at the end of the last line shows that the text is longer.
pub(super) fn wrapped(text: &str, width: usize, most: usize, look: Look) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.len() > width {
            lines.push(String::new());
        }
        while word.len() > width.max(1) {
            let rest = word.split_off(width.max(1));
            lines.insert(lines.len() - 1, word.into_iter().collect());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(word);
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = text::cut(&format!("{last} {}", look.cut()), width, look);
        }
    }
    lines
}

/// Text of exactly this width, aligned right.
pub(super) fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}
