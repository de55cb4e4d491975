//! Columns of the table of victims: their order, their importance, and their cells.

use api::{ContainerFrame, Rates};
use ratatui::style::Style;

use crate::look::Look;
use crate::text;

/// A column of the table of victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Name,
    Used,
    Limit,
    Own,
    Above,
    Neighbor,
    System,
    Same,
    Smt,
    Contention,
    Aggressor,
    Minute,
}

/// Columns with the trace, most important first: what does not fit is left out from the end.
const TRACED: &[Column] = &[
    Column::Name,
    Column::Used,
    Column::Limit,
    Column::Own,
    Column::Neighbor,
    Column::Above,
    Column::Aggressor,
    Column::Minute,
    Column::System,
    Column::Same,
    Column::Smt,
];

/// Columns without the trace.
const UNTRACED: &[Column] = &[
    Column::Name,
    Column::Used,
    Column::Limit,
    Column::Own,
    Column::Above,
    Column::Contention,
    Column::Minute,
];

/// Columns from left to right.
const ORDER: &[Column] = &[
    Column::Name,
    Column::Used,
    Column::Limit,
    Column::Own,
    Column::Above,
    Column::Neighbor,
    Column::System,
    Column::Same,
    Column::Smt,
    Column::Contention,
    Column::Aggressor,
    Column::Minute,
];

/// Width of the marks of selection and cause before the name.
pub(crate) const MARKS: usize = 3;
/// Largest width of the strip of the last minute: one character per second.
const MINUTE_WIDTH: usize = 60;

impl Column {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Name => "POD",
            Self::Used => "USED",
            Self::Limit => "LIMIT",
            Self::Own => "OWN",
            Self::Above => "ABOVE",
            Self::Neighbor => "NEIGHBOR",
            Self::System => "SYSTEM",
            Self::Same => "SELF",
            Self::Smt => "SMT",
            Self::Contention => "CONTENTION",
            Self::Aggressor => "WORST AGGRESSOR",
            Self::Minute => "LAST MINUTE",
        }
    }

    /// Title over the columns of one kind.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Used | Self::Limit => "cores",
            Self::Own | Self::Above => "throttled",
            Self::Neighbor | Self::System | Self::Same => "waits for",
            _ => "",
        }
    }

    fn least_width(self) -> usize {
        match self {
            Self::Name => 17,
            Self::Own => 4,
            Self::Aggressor => 15,
            Self::Minute => 11,
            Self::Smt => 5,
            _ => self.title().len().max(5),
        }
    }

    /// Whether the column has numbers, aligned right.
    pub(crate) fn is_number(self) -> bool {
        !matches!(self, Self::Name | Self::Aggressor | Self::Minute)
    }

    /// Value to sort by; absent values sort last.
    pub(crate) fn value(self, row: &ContainerFrame) -> f64 {
        let rates = &row.rates;
        let value = match self {
            Self::Used => rates.usage_cores,
            Self::Limit => row.limit_cores,
            Self::Own => rates.throttled_share,
            Self::Above => rates.throttled_ancestor,
            Self::Neighbor => rates.neighbor,
            Self::System => rates.system,
            Self::Same => rates.own,
            Self::Smt => rates.smt,
            Self::Contention => rates.contention,
            // Not sorted by.
            Self::Name | Self::Aggressor | Self::Minute => None,
        };
        value.unwrap_or(-1.0)
    }

    /// Text and style of a number.
    pub(crate) fn cell(self, row: &ContainerFrame, look: Look) -> (String, Style) {
        let rates = &row.rates;
        match self {
            Self::Used => (text::cores(rates.usage_cores), used_style(row, look)),
            Self::Limit => (text::cores(row.limit_cores), Style::new()),
            Self::Own => (text::percent(rates.throttled_share), own_style(rates, look)),
            Self::Above => waited(rates.throttled_ancestor, look),
            Self::Neighbor => waited(rates.neighbor, look),
            Self::System => waited(rates.system, look),
            Self::Same => (text::time(rates.own), Style::new()),
            Self::Smt => (text::time(rates.smt), Style::new()),
            Self::Contention => {
                let (text, style) = waited(rates.contention, look);
                (if rates.contention.is_some() { format!(">={text}") } else { text }, style)
            }
            Self::Name | Self::Aggressor | Self::Minute => (String::new(), Style::new()),
        }
    }
}

fn used_style(row: &ContainerFrame, look: Look) -> Style {
    let share = row.rates.usage_cores.zip(row.limit_cores).map(|(used, limit)| used / limit);
    if share.is_some_and(|share| share >= 0.95) { look.warm() } else { Style::new() }
}

fn own_style(rates: &Rates, look: Look) -> Style {
    look.heat(rates.throttled_share.unwrap_or(0.0))
}

fn waited(time: Option<f64>, look: Look) -> (String, Style) {
    (text::time(time), look.heat(time.unwrap_or(0.0)))
}

/// The columns that fit into `width`, from left to right, with their widths. `name` and `aggressor`
/// are the longest texts of those columns.
pub(crate) fn layout(
    width: usize,
    is_traced: bool,
    name: usize,
    aggressor: usize,
) -> Vec<(Column, usize)> {
    let wanted = if is_traced { TRACED } else { UNTRACED };
    let mut left = width.saturating_sub(MARKS);
    let mut shown = Vec::new();
    for &column in wanted {
        let needed = column.least_width() + usize::from(column != Column::Name);
        if needed > left {
            break;
        }
        left -= needed;
        shown.push(column);
    }
    let mut columns: Vec<(Column, usize)> = ORDER
        .iter()
        .filter(|column| shown.contains(column))
        .map(|&column| (column, column.least_width()))
        .collect();
    let wishes = [
        (Column::Name, name.min(32)),
        (Column::Aggressor, aggressor.min(28)),
        (Column::Minute, 30),
        (Column::Name, name.min(64)),
        (Column::Aggressor, aggressor.min(48)),
        (Column::Minute, MINUTE_WIDTH),
    ];
    for (column, wish) in wishes {
        let found = columns.iter_mut().find(|(one, _)| *one == column);
        let Some((_, width)) = found else { continue };
        let more = wish.saturating_sub(*width).min(left);
        *width += more;
        left -= more;
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(width: usize, is_traced: bool) -> Vec<Column> {
        layout(width, is_traced, 40, 40).into_iter().map(|(column, _)| column).collect()
    }

    #[test]
    fn the_least_important_columns_go_first() {
        let at_80 = names(80, true);
        assert!(at_80.contains(&Column::Aggressor) && at_80.contains(&Column::Minute));
        assert!(!at_80.contains(&Column::Smt) && !at_80.contains(&Column::Same));
        assert_eq!(names(200, true).len(), TRACED.len());
        assert!(names(19, true).is_empty(), "too narrow for a name");
        assert_eq!(names(24, true), [Column::Name]);
    }

    #[test]
    fn columns_never_exceed_the_width() {
        for width in 0..300 {
            for is_traced in [true, false] {
                let columns = layout(width, is_traced, 70, 70);
                let needed: usize = columns.iter().map(|(_, width)| width + 1).sum();
                assert!(columns.is_empty() || MARKS + needed - 1 <= width, "{width}: {columns:?}");
            }
        }
    }

    #[test]
    fn without_the_trace_the_bounds_are_shown_instead_of_causes() {
        let columns = names(80, false);
        assert!(columns.contains(&Column::Contention) && !columns.contains(&Column::Neighbor));
    }
}
