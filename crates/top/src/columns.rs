//! Columns of the table of victims: their order, their importance, and their cells.

use api::{ContainerFrame, Frame, Rates};
use ratatui::style::Style;

use crate::look::Look;
use crate::text;

/// A column of the table of victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Column {
    Name,
    Used,
    Limit,
    Own,
    Above,
    Collector,
    Neighbor,
    System,
    Same,
    Smt,
    Contention,
    Factor,
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
];
/// Further columns with the trace, for the room that the names leave.
const TRACED_MORE: &[Column] =
    &[Column::Factor, Column::System, Column::Collector, Column::Same, Column::Smt];

/// Columns without the trace.
const UNTRACED: &[Column] = &[
    Column::Name,
    Column::Used,
    Column::Limit,
    Column::Own,
    Column::Above,
    Column::Contention,
    Column::Minute,
    Column::Collector,
];

/// Columns from left to right.
const ORDER: &[Column] = &[
    Column::Name,
    Column::Used,
    Column::Limit,
    Column::Own,
    Column::Above,
    Column::Collector,
    Column::Neighbor,
    Column::System,
    Column::Same,
    Column::Smt,
    Column::Contention,
    Column::Factor,
    Column::Aggressor,
    Column::Minute,
];

/// Width of the marks of selection and cause before the name.
pub(crate) const MARKS: usize = 3;
/// Largest width of the strip of the last minute: one character per second.
const MINUTE_WIDTH: usize = 60;
/// Width up to which names come before the less important columns.
const LONG_NAME: usize = 40;
/// Width up to which names come before a longer strip of the last minute.
const LONGEST_NAME: usize = 100;
/// Value below which a cell shows none: half a millisecond per second.
const SHOWN_FROM: f64 = 0.0005;

impl Column {
    pub(crate) const ALL: &[Self] = ORDER;

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Name => "POD",
            Self::Used => "USED",
            Self::Limit => "LIMIT",
            Self::Own => "OWN",
            Self::Above => "ABOVE",
            Self::Collector => "GC",
            Self::Neighbor => "OTHERS",
            Self::System => "SYSTEM",
            Self::Same => "SELF",
            Self::Smt => "SMT",
            Self::Contention => "WAITED",
            Self::Factor => "SLOWED",
            Self::Aggressor => "SLOWED BY",
            Self::Minute => "LAST MINUTE",
        }
    }

    /// Title over the columns of one kind.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Used | Self::Limit => "cores",
            Self::Own | Self::Above => "throttled",
            Self::Neighbor | Self::System | Self::Same => "waited for",
            Self::Minute => "time lost",
            _ => "",
        }
    }

    fn least_width(self) -> usize {
        match self {
            Self::Name => 21,
            Self::Own | Self::Collector => 4,
            // Room for `its own limit`.
            Self::Aggressor => 13,
            Self::Minute => 11,
            Self::Smt => 5,
            // Room for `>=1200%`.
            Self::Contention => 7,
            _ => self.title().len().max(5),
        }
    }

    /// Whether the column has numbers, aligned right.
    pub(crate) fn is_number(self) -> bool {
        !matches!(self, Self::Name | Self::Factor | Self::Aggressor | Self::Minute)
    }

    /// Whether any container has a value in this column. Both kinds of throttling count as one: a
    /// column that is left alone would have no title of its own.
    pub(crate) fn is_filled(self, frame: &Frame) -> bool {
        let has = |column: Self| frame.containers.iter().any(|row| column.value(row) > SHOWN_FROM);
        match self {
            Self::Name | Self::Used | Self::Minute => true,
            Self::Factor | Self::Aggressor => !frame.verdicts.is_empty(),
            Self::Own | Self::Above => has(Self::Own) || has(Self::Above),
            other => has(other),
        }
    }

    /// Value to sort by; absent values sort last.
    pub(crate) fn value(self, row: &ContainerFrame) -> f64 {
        let rates = &row.rates;
        let value = match self {
            Self::Used => rates.usage_cores,
            Self::Limit => row.limit_cores,
            Self::Own => rates.throttled_share,
            Self::Above => rates.throttled_ancestor,
            Self::Collector => collector_share(row),
            Self::Neighbor => rates.neighbor,
            Self::System => rates.system,
            Self::Same => rates.own,
            Self::Smt => rates.smt,
            Self::Contention => rates.contention,
            // Not sorted by.
            Self::Name | Self::Factor | Self::Aggressor | Self::Minute => None,
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
            Self::Collector => (text::percent(collector_share(row)), Style::new()),
            Self::Neighbor => waited(rates.neighbor, look),
            Self::System => waited(rates.system, look),
            Self::Same => (text::percent(rates.own), Style::new()),
            Self::Smt => (text::percent(rates.smt), Style::new()),
            Self::Contention => {
                let (text, style) = waited(rates.contention, look);
                (if rates.contention.is_some() { format!(">={text}") } else { text }, style)
            }
            Self::Name | Self::Factor | Self::Aggressor | Self::Minute => {
                (String::new(), Style::new())
            }
        }
    }
}

/// Share of the program's CPU time that its garbage collector took.
fn collector_share(row: &ContainerFrame) -> Option<f64> {
    row.gc.as_ref()?.cpu_share
}

fn used_style(row: &ContainerFrame, look: Look) -> Style {
    let share = row.rates.usage_cores.zip(row.limit_cores).map(|(used, limit)| used / limit);
    if share.is_some_and(|share| share >= 0.95) { look.warm() } else { Style::new() }
}

fn own_style(rates: &Rates, look: Look) -> Style {
    look.heat(rates.throttled_share.unwrap_or(0.0))
}

fn waited(time: Option<f64>, look: Look) -> (String, Style) {
    (text::percent(time), look.heat(time.unwrap_or(0.0)))
}

/// Widths of the longest texts of two columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Longest {
    pub(crate) name: usize,
    pub(crate) aggressor: usize,
}

/// The columns that fit into `width`, from left to right, with their widths. If the names do not
/// fit, columns for which `is_filled` is false are left out.
pub(crate) fn layout(
    width: usize,
    is_traced: bool,
    longest: Longest,
    is_filled: impl Fn(Column) -> bool,
) -> Vec<(Column, usize)> {
    let all = fitted(width, is_traced, longest, |_| true);
    match all.first() {
        Some((_, name)) if *name < longest.name => fitted(width, is_traced, longest, is_filled),
        _ => all,
    }
}

fn fitted(
    width: usize,
    is_traced: bool,
    longest: Longest,
    is_wanted: impl Fn(Column) -> bool,
) -> Vec<(Column, usize)> {
    let (first, more) = if is_traced { (TRACED, TRACED_MORE) } else { (UNTRACED, &[][..]) };
    let mut left = width.saturating_sub(MARKS);
    let mut shown: Vec<(Column, usize)> = Vec::new();
    let add = |columns: &[Column], left: &mut usize, shown: &mut Vec<(Column, usize)>| {
        for &column in columns.iter().filter(|column| is_wanted(**column)) {
            let needed = column.least_width() + usize::from(column != Column::Name);
            if needed > *left {
                return false;
            }
            *left -= needed;
            shown.push((column, column.least_width()));
        }
        true
    };
    let widen = |column, wish: usize, left: &mut usize, shown: &mut Vec<(Column, usize)>| {
        let found = shown.iter_mut().find(|(one, _)| *one == column);
        let Some((_, width)) = found else { return };
        let more = wish.saturating_sub(*width).min(*left);
        *width += more;
        *left -= more;
    };
    let is_complete = add(first, &mut left, &mut shown);
    widen(Column::Name, longest.name.min(LONG_NAME), &mut left, &mut shown);
    if is_complete {
        add(more, &mut left, &mut shown);
    }
    let wishes = [
        (Column::Aggressor, longest.aggressor.min(28)),
        (Column::Name, longest.name.min(LONGEST_NAME)),
        (Column::Minute, 30),
        (Column::Aggressor, longest.aggressor.min(48)),
        (Column::Minute, MINUTE_WIDTH),
    ];
    for (column, wish) in wishes {
        widen(column, wish, &mut left, &mut shown);
    }
    shown.sort_by_key(|(column, _)| ORDER.iter().position(|one| one == column));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize, is_traced: bool, length: usize) -> Vec<(Column, usize)> {
        let longest = Longest { name: length, aggressor: length };
        layout(width, is_traced, longest, |_| true)
    }

    fn names(width: usize, is_traced: bool) -> Vec<Column> {
        shown(width, is_traced, 40).into_iter().map(|(column, _)| column).collect()
    }

    #[test]
    fn the_least_important_columns_go_first() {
        let at_80 = names(80, true);
        assert!(at_80.contains(&Column::Aggressor) && at_80.contains(&Column::Minute));
        assert!(!at_80.contains(&Column::Smt) && !at_80.contains(&Column::Same));
        assert_eq!(names(200, true).len(), TRACED.len() + TRACED_MORE.len());
        assert!(names(23, true).is_empty(), "too narrow for a name");
        assert_eq!(names(24, true), [Column::Name]);
    }

    #[test]
    fn columns_never_exceed_the_width() {
        for width in 0..300 {
            for is_traced in [true, false] {
                let columns = shown(width, is_traced, 70);
                let needed: usize = columns.iter().map(|(_, width)| width + 1).sum();
                assert!(columns.is_empty() || MARKS + needed - 1 <= width, "{width}: {columns:?}");
            }
        }
    }

    #[test]
    fn names_take_the_room_of_columns_without_values() {
        let width_of_name = |width, name, is_filled: fn(Column) -> bool| {
            layout(width, true, Longest { name, aggressor: 20 }, is_filled)[0].1
        };
        assert_eq!(width_of_name(80, 60, |_| true), 21);
        let is_filled = |column| {
            ![Column::Own, Column::Above, Column::Factor, Column::Aggressor].contains(&column)
        };
        assert_eq!(width_of_name(80, 60, is_filled), 46);
        // Where the names fit, the columns stay.
        let all = layout(80, true, Longest { name: 20, aggressor: 20 }, is_filled);
        assert!(all.iter().any(|(column, _)| *column == Column::Own), "{all:?}");
        // Names come before the less important columns.
        let at_120 = layout(120, true, Longest { name: 60, aggressor: 20 }, |_| true);
        assert!(at_120[0].1 >= LONG_NAME, "{at_120:?}");
    }

    #[test]
    fn without_the_trace_the_bounds_are_shown_instead_of_causes() {
        let columns = names(80, false);
        assert!(columns.contains(&Column::Contention) && !columns.contains(&Column::Neighbor));
    }
}
