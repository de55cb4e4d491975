//! Output of commands.

use std::borrow::Cow;
use std::io::{self, Write as _};

/// Prints to standard output. Ignores a closed pipe, as with `head`.
pub fn show(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush());
}

/// The text without characters that change a terminal: names come from the cluster, and recordings
/// and answers from anywhere. Line breaks and tabs stay, all else becomes U+FFFD.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unprintable) {
        let replaced = |char| if is_unprintable(char) { char::REPLACEMENT_CHARACTER } else { char };
        text.chars().map(replaced).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether a terminal would act on it: control characters, and those that reorder a line.
fn is_unprintable(char: char) -> bool {
    let reorders =
        matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    char.is_control() && !matches!(char, '\n' | '\t') || reorders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        for (text, expected) in [
            ("a\tb\n", "a\tb\n"),
            ("×≥·é 日本", "×≥·é 日本"),
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}"),
            ("a\rb", "a\u{fffd}b"),
            ("\u{9b}2J\u{7f}\u{0}", "\u{fffd}2J\u{fffd}\u{fffd}"),
            ("\u{202e}fdp.exe", "\u{fffd}fdp.exe"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
