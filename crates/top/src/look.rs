//! Colors and characters that the terminal can show.

use ratatui::style::{Color, Modifier, Style};

/// Blocks of growing height: the first is empty.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters of growing density, for terminals without block characters.
const SHADES: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];

/// Colors and characters that the terminal can show. Everything is readable without colors: cause
/// and severity are letters and numbers, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether to use colors.
    pub color: bool,
    /// Whether to use characters beyond ASCII.
    pub unicode: bool,
}

impl Look {
    /// Reads `NO_COLOR`, `TERM` and the locale from the environment.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let term = variable("TERM").unwrap_or_default();
        let is_plain = ["dumb", "vt100", "vt102", "vt220"].contains(&term.as_str());
        let locale =
            variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG"));
        // Without a locale, as in most containers, the terminal nevertheless shows UTF-8.
        let is_utf8 = locale.is_none_or(|locale| {
            let locale = locale.to_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Self {
            color: variable("NO_COLOR").is_none() && !is_plain,
            unicode: is_utf8 && !is_plain && term != "linux",
        }
    }

    /// Style of a value that costs latency now.
    pub(crate) fn bad(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Style of a value to watch.
    pub(crate) fn warm(self) -> Style {
        self.colored(Color::Yellow)
    }

    /// Style of units, legends and keys. Not a color: some themes, such as Solarized, have the
    /// color of the background as their dark gray.
    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Style of a headline.
    pub(crate) fn strong(self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Style of the selected row.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Style for time lost, seconds per second.
    pub(crate) fn heat(self, lost: f64) -> Style {
        match lost {
            lost if lost >= 0.5 => self.bad(),
            lost if lost >= 0.05 => self.warm(),
            _ => Style::new(),
        }
    }

    fn colored(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// Character for a share of the full height. A value above zero is never empty.
    pub(crate) fn bar(self, share: f64) -> char {
        let levels = if self.unicode { BLOCKS } else { SHADES };
        if share.is_nan() || share <= 0.0 {
            return levels[0];
        }
        // In the range 1 to 8.
        levels[(share.min(1.0) * 8.0).ceil() as usize]
    }

    /// Mark of text that was cut.
    pub(crate) fn cut(self) -> char {
        if self.unicode { '…' } else { '~' }
    }

    /// Mark of a column that has no value.
    pub(crate) fn gap(self) -> char {
        if self.unicode { '·' } else { '_' }
    }

    /// Mark of the sorted column.
    pub(crate) fn sorted(self, ascending: bool) -> char {
        match (self.unicode, ascending) {
            (true, false) => '▼',
            (true, true) => '▲',
            (false, false) => 'v',
            (false, true) => '^',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> (bool, bool) {
        let look = Look::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        (look.color, look.unicode)
    }

    #[test]
    fn no_color_and_old_terminals_are_respected() {
        assert_eq!(look(&[("TERM", "xterm-256color")]), (true, true));
        assert_eq!(look(&[("TERM", "xterm"), ("NO_COLOR", "1")]), (false, true));
        assert_eq!(look(&[("TERM", "vt100")]), (false, false));
        assert_eq!(look(&[("TERM", "xterm"), ("LANG", "C")]), (true, false));
        assert_eq!(look(&[("TERM", "xterm"), ("LANG", "C.UTF-8")]), (true, true));
        assert_eq!(
            look(&[("TERM", "xterm"), ("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")]),
            (true, false)
        );
    }

    #[test]
    fn a_bar_shows_every_value_above_zero() {
        let look = Look { color: false, unicode: true };
        assert_eq!(
            [0.0, 0.001, 0.5, 1.0, 7.0, f64::NAN].map(|share| look.bar(share)),
            [' ', '▁', '▄', '█', '█', ' ']
        );
        let ascii = Look { unicode: false, ..look };
        assert_eq!([0.0, 0.001, 1.0].map(|share| ascii.bar(share)), [' ', '.', '@']);
    }
}
