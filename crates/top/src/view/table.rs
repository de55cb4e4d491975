//! The tables of victims and of aggressors.

use api::{ContainerFrame, Frame};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::lines::right;
use crate::app::App;
use crate::cause::{self, Cause};
use crate::columns::{self, Column, Longest, MARKS};
use crate::history::{MINUTE, key};
use crate::names;
use crate::rows::{self, Harm, HarmSort, Sort};
use crate::text;

/// Time lost at which a bar of the last minute is full, seconds per second.
const FULL: f64 = 1.0;
/// Widths of the numbers in the table of aggressors.
const HARM_NUMBERS: [usize; 3] = [8, 9, 8];
/// Least widths of the names in the table of aggressors.
const HARM_NAMES: (usize, usize) = (20, 14);

/// The visible rows of the table of victims, with its head, and its columns.
pub(super) fn victims(app: &App, width: usize, height: usize) -> (Vec<Line<'static>>, Vec<Column>) {
    let (at, _) = app.selection();
    let (mut lines, rows, columns) = head_and_rows(app, width, height > 8);
    let visible = height.saturating_sub(lines.len());
    let (first, last) = window(at, visible, rows.len());
    lines.extend(mark(rows, at, app).into_iter().take(last).skip(first));
    if lines.len() < 3 && app.frame.is_some() {
        lines.push(Line::styled("no container matches", app.look.dim()));
    }
    (lines, columns)
}

/// All rows, none selected.
pub(super) fn all_victims(app: &App, width: usize) -> Vec<Line<'static>> {
    let (mut lines, rows, _) = head_and_rows(app, width, true);
    lines.extend(rows);
    lines
}

fn head_and_rows(
    app: &App,
    width: usize,
    has_groups: bool,
) -> (Vec<Line<'static>>, Vec<Line<'static>>, Vec<Column>) {
    let Some(frame) = &app.frame else { return Default::default() };
    let rows = app.victims();
    let names: Vec<String> = rows.iter().map(|row| rows::short_name(row, frame)).collect();
    let aggressors: Vec<String> = rows.iter().map(|row| aggressor(row, frame)).collect();
    let length =
        |texts: &[String]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let action = actions_width(frame);
    let longest = Longest { name: action + length(&names), aggressor: length(&aggressors) };
    let columns = columns::layout(width, app.is_traced(), longest, |column| {
        app.filled.contains(&column) || app.sort == Sort::By(column)
    });
    let room = columns.first().map_or(0, |(_, width)| width.saturating_sub(action));
    let names = names::told_apart(&names, room, app.look);
    let room = columns.iter().find(|(column, _)| *column == Column::Aggressor);
    let aggressors = names::told_apart(&aggressors, room.map_or(0, |(_, width)| *width), app.look);
    let mut head = Vec::new();
    if has_groups {
        head.push(Line::styled(groups(&columns), app.look.dim()));
    }
    head.push(Line::styled(titles(&columns, app), app.look.strong()));
    let lines = rows.iter().zip(names.iter().zip(&aggressors));
    let lines =
        lines.map(|(row, (name, aggressor))| line(app, frame, row, [name, aggressor], &columns));
    (head, lines.collect(), columns.iter().map(|(column, _)| *column).collect())
}

/// Width of the letter before each name where pods yield or limits burst.
fn actions_width(frame: &Frame) -> usize {
    let actions = &frame.node.colocation;
    if actions.yields.is_empty() && actions.bursts.is_empty() { 0 } else { 2 }
}

/// The letter before the container's name, where there is any.
fn action(row: &ContainerFrame, frame: &Frame) -> &'static str {
    match &frame.node.colocation {
        actions if actions.yields.is_empty() && actions.bursts.is_empty() => "",
        actions if actions.yields(row) => "y ",
        actions if actions.bursts(row) => "b ",
        _ => "  ",
    }
}

fn aggressor(row: &ContainerFrame, frame: &Frame) -> String {
    let cause = cause::slowed_by(row, frame);
    if cause.is_empty() { text::ABSENT.to_owned() } else { cause }
}

/// Titles of the kinds of columns, each over its first column.
fn groups(columns: &[(Column, usize)]) -> String {
    let mut line = " ".repeat(MARKS - 1);
    let mut group = "";
    let mut end = 0;
    let mut start = MARKS - 1;
    for &(column, width) in columns {
        let name = column.group();
        if name != group && !name.is_empty() && start + 1 >= end {
            line.truncate(start);
            line += &" ".repeat(start.saturating_sub(line.len()) + 1);
            // Over the right end of a single narrow column.
            line += name;
            end = line.len();
        }
        group = name;
        start += width + 1;
    }
    line
}

fn titles(columns: &[(Column, usize)], app: &App) -> String {
    let mut line = " ".repeat(MARKS);
    for (at, &(column, width)) in columns.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        let is_sorted = app.sort == Sort::By(column);
        let mark =
            if is_sorted { String::from(app.look.sorted(app.is_ascending)) } else { String::new() };
        let title = text::fit(column.title(), width.saturating_sub(mark.chars().count()), app.look);
        let title = format!("{mark}{}", title.trim_end());
        line += &if column.is_number() { right(&title, width) } else { format!("{title:<width$}") };
    }
    line
}

fn line(
    app: &App,
    frame: &Frame,
    row: &ContainerFrame,
    [name, aggressor]: [&str; 2],
    columns: &[(Column, usize)],
) -> Line<'static> {
    let look = app.look;
    let letter = match Cause::judged(row, frame) {
        Some(cause) => cause.letter(),
        None if app.has_ended(row) => 'x',
        None => ' ',
    };
    let heat = look.heat(row.rates.lost());
    let mut spans = vec![Span::raw(" "), Span::styled(format!("{letter} "), heat)];
    for &(column, width) in columns {
        if column != Column::Name {
            spans.push(Span::raw(" "));
        }
        let (text, style) = match column {
            Column::Name => {
                (text::fit(&format!("{}{name}", action(row, frame)), width, look), heat)
            }
            Column::Factor => (right(&cause::factor(row, frame), width), Style::new()),
            Column::Aggressor => (text::fit(aggressor, width, look), Style::new()),
            Column::Minute => {
                let lost = app.history.lost_minute(&key(row));
                (text::strip(&lost, width, FULL, look), upright(heat))
            }
            number => {
                let (text, style) = number.cell(row, look);
                (right(&text, width), style)
            }
        };
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// Style of a strip, which keeps its look in the selected row: reversed, its bars would be gaps.
fn upright(style: Style) -> Style {
    style.remove_modifier(Modifier::REVERSED)
}

/// The rows with the selected one marked.
fn mark(mut rows: Vec<Line<'static>>, at: usize, app: &App) -> Vec<Line<'static>> {
    if let Some(line) = rows.get_mut(at) {
        if let Some(first) = line.spans.first_mut() {
            *first = Span::raw(">");
        }
        *line = std::mem::take(line).patch_style(app.look.selected());
    }
    rows
}

/// First and last visible row, such that the selected one is visible.
fn window(at: usize, visible: usize, count: usize) -> (usize, usize) {
    let first = (at + 1).saturating_sub(visible);
    (first, (first + visible).min(count))
}

/// The visible rows of the table of aggressors, with its head.
pub(super) fn aggressors(app: &App, width: usize, height: usize) -> Vec<Line<'static>> {
    if app.frame.is_some() && !app.is_traced() {
        return vec![Line::styled(
            "without the trace it is unknown who makes whom wait",
            app.look.warm(),
        )];
    }
    let (at, count) = app.selection();
    let numbers: usize = HARM_NUMBERS.iter().map(|width| width + 1).sum();
    let left = width.saturating_sub(MARKS + numbers + 2);
    let strip = (left.saturating_sub(HARM_NAMES.0 + HARM_NAMES.1)).min(MINUTE);
    let worst = (left - strip.min(left)) * 2 / 5;
    let name = left.saturating_sub(strip + worst);
    let [now, seconds, victims] = HARM_NUMBERS;
    let sorted = |sort: HarmSort, title: &str| {
        let mark = (app.harm_sort == sort).then(|| app.look.sorted(app.is_ascending));
        mark.into_iter().chain(title.chars()).collect::<String>()
    };
    let title = format!(
        "   {:<name$} {:>now$} {:>seconds$} {:>victims$} {} {}",
        "MAKES WAIT",
        sorted(HarmSort::Now, "NOW"),
        sorted(HarmSort::Seconds, &format!("IN {:.0} S", app.history.covered())),
        sorted(HarmSort::Victims, "VICTIMS"),
        text::fit("WORST VICTIM", worst, app.look),
        "LAST MINUTE"
    );
    let mut lines = vec![Line::styled(title, app.look.strong())];
    let rows = app.aggressors();
    let told_apart = |name: fn(&Harm) -> String, width| {
        names::told_apart(&rows.iter().map(name).collect::<Vec<_>>(), width, app.look)
    };
    let names = told_apart(|row| cause::pod(&row.aggressor), name);
    let victims = told_apart(|row| row.worst.as_ref().map(cause::pod).unwrap_or_default(), worst);
    let rows = rows.iter().zip(names.iter().zip(&victims)).map(|(row, (one, other))| {
        let named = [text::fit(one, name, app.look), text::fit(other, worst, app.look)];
        harm_line(app, row, named, strip)
    });
    let rows = rows.collect();
    let visible = height.saturating_sub(1);
    let (first, last) = window(at, visible, count);
    lines.extend(mark(rows, at, app).into_iter().take(last).skip(first));
    if count == 0 {
        lines.push(Line::styled("no pod made another one wait", app.look.dim()));
    }
    lines
}

fn harm_line(app: &App, row: &Harm, [name, worst]: [String; 2], strip: usize) -> Line<'static> {
    let look = app.look;
    let heat = look.heat(row.now);
    let [now, seconds, victims] = HARM_NUMBERS;
    let minute = app.history.harm_minute(&row.aggressor);
    Line::from(vec![
        Span::raw(" "),
        Span::raw("  "),
        Span::styled(name, heat),
        Span::styled(format!(" {:>now$}", text::percent(Some(row.now))), heat),
        Span::raw(format!(" {:>seconds$}", text::time(Some(row.seconds)))),
        Span::raw(format!(" {:>victims$} ", row.victims)),
        Span::raw(worst),
        Span::styled(format!(" {}", text::strip(&minute, strip, FULL, look)), upright(heat)),
    ])
}
