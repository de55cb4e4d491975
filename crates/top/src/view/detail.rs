//! One container: five minutes of its use and its delays, and what to change.

use api::{ContainerFrame, GarbageCollection, Measure};
use ratatui::text::{Line, Span};

use super::lines::{right, wrapped};
use crate::app::App;
use crate::cause;
use crate::history::{KEPT, Key, key};
use crate::rows;
use crate::text;

/// Width of the labels.
const LABEL: usize = 18;
/// Width of a number after a strip.
const NUMBER: usize = 7;
/// Least time that fills a bar of the waits, seconds per second.
const MIN_FULL: f64 = 0.05;
/// Waits by cause, with the trace.
const WAITS: [(&str, Measure); 5] = [
    ("throttled, above", Measure::ThrottledAncestor),
    ("waited, others", Measure::Neighbor),
    ("waited, system", Measure::System),
    ("waited, self", Measure::Own),
    ("SMT, shared core", Measure::Smt),
];
/// The same without it.
const UNTRACED: [(&str, Measure); 2] =
    [("throttled, above", Measure::ThrottledAncestor), ("waited, at least", Measure::Contention)];

pub(super) fn lines(app: &App, shown: &Key, width: usize, height: usize) -> Vec<Line<'static>> {
    let rows = app.containers_of(shown);
    let Some(at) = rows.iter().position(|row| row.container == shown.2) else {
        let name = format!("{}/{}/{}", shown.0, shown.1, shown.2);
        return vec![Line::raw(format!("{} is gone; Esc goes back", text::clean(&name)))];
    };
    let row = rows[at];
    let mut lines = title(app, row, at, rows.len(), width);
    lines.extend(strips(app, row, width));
    lines.extend(findings(app, row, width));
    lines.extend(aggressors(app, row, width, if height < 24 { 3 } else { 10 }));
    lines
}

fn title(
    app: &App,
    row: &ContainerFrame,
    at: usize,
    count: usize,
    width: usize,
) -> Vec<Line<'static>> {
    let place = match count {
        1 => String::new(),
        _ => format!("  (container {} of {count}, Tab: next)", at + 1),
    };
    let room = width.saturating_sub(place.chars().count());
    let name = text::fit(&rows::full_name(row), room, app.look);
    let name = format!("{}{place}", name.trim_end());
    let mut facts: Vec<String> =
        app.has_ended(row).then(|| "ended".to_owned()).into_iter().collect();
    facts.push(format!("limit {}", text::cores(row.limit_cores)));
    facts.push(format!("request {}", text::cores(row.request_cores)));
    facts.push(text::clean(&row.qos_class));
    if !row.cpu_qos.is_empty() {
        facts.push(format!("Koordinator {}", text::clean(&row.cpu_qos)));
    }
    facts.extend(row.gc.as_ref().and_then(collections));
    // The last: a list of CPUs may be longer than the line.
    facts.extend(row.cpus.as_ref().map(|cpus| format!("CPUs {}", text::clean(cpus))));
    vec![Line::styled(name, app.look.strong()), Line::raw(facts.join("  "))]
}

/// Garbage collection: its share of the program's CPU time, and its cycles; `None` if neither is known.
fn collections(gc: &GarbageCollection) -> Option<String> {
    let share = gc.cpu_share.map(|share| format!("{} of its CPU", text::percent(Some(share))));
    let cycles = gc.cycles.map(|cycles| format!("{cycles:.1} cycles/s"));
    let known: Vec<_> = share.into_iter().chain(cycles).collect();
    (!known.is_empty()).then(|| format!("GC {}", known.join(", ")))
}

/// A strip of the last five minutes for each measure.
fn strips(app: &App, row: &ContainerFrame, width: usize) -> Vec<Line<'static>> {
    let waits: &[_] = if app.is_traced() { &WAITS } else { &UNTRACED };
    let key = key(row);
    let values = |measure| app.history.values(&key, measure, KEPT);
    let peak = |measure| f64::from(largest(&values(measure)));
    let strip_width = width.saturating_sub(LABEL + 2 * NUMBER);
    let full = waits.iter().map(|(_, measure)| peak(*measure)).fold(MIN_FULL, f64::max);
    let heading = format!(
        "{:<LABEL$}{}{:>NUMBER$}{:>NUMBER$}",
        "last 5 minutes",
        " ".repeat(strip_width),
        "NOW",
        "PEAK"
    );
    let mut lines = vec![Line::styled(heading, app.look.dim())];
    let limit = row
        .limit_cores
        .map_or("used".to_owned(), |limit| format!("used, limit {}", text::cores(Some(limit))));
    let used_full = row.limit_cores.unwrap_or(0.0).max(peak(Measure::UsageCores)).max(0.01);
    let mut add = |label: &str, measure: Measure, full: f64, show: fn(Option<f64>) -> String| {
        let now = measure.of(&row.rates, row.limit_cores);
        let known = values(measure);
        let most =
            Some(f64::from(largest(&known))).filter(|_| known.iter().any(|one| !one.is_nan()));
        lines.push(Line::from(vec![
            Span::styled(text::fit(label, LABEL, app.look), app.look.dim()),
            Span::raw(text::strip(&padded(known), strip_width, full, app.look)),
            Span::raw(right(&show(now), NUMBER)),
            Span::raw(right(&show(most), NUMBER)),
        ]));
    };
    add(&limit, Measure::UsageCores, used_full, text::cores);
    add("throttled, own", Measure::ThrottledShare, 1.0, text::percent);
    for &(label, measure) in waits {
        add(label, measure, full, text::percent);
    }
    lines
}

/// Five minutes of values; those before the first are absent.
fn padded(values: Vec<f32>) -> Vec<f32> {
    std::iter::repeat_n(f32::NAN, KEPT - values.len().min(KEPT)).chain(values).collect()
}

fn largest(values: &[f32]) -> f32 {
    values.iter().copied().filter(|value| !value.is_nan()).fold(0.0, f32::max)
}

fn aggressors(app: &App, row: &ContainerFrame, width: usize, most: usize) -> Vec<Line<'static>> {
    if !app.is_traced() {
        return Vec::new();
    }
    let found = rows::aggressors_of(&row.pod_name(), &app.history);
    let heading = format!("the pod waited for, in {:.0} s", app.history.covered());
    let mut lines = vec![Line::styled(heading, app.look.dim())];
    let longest = found.first().map_or(1.0, |(_, seconds)| *seconds);
    for (name, seconds) in found.iter().take(most) {
        let name_width = 40.min(width.saturating_sub(12));
        let bar = width.saturating_sub(name_width + 12).min(24);
        let filled = (seconds / longest * bar as f64).ceil() as usize;
        lines.push(Line::raw(format!(
            "  {} {:>8} {}",
            text::fit(&cause::pod(name), name_width, app.look),
            text::time(Some(*seconds)),
            String::from(app.look.bar(1.0)).repeat(filled.min(bar))
        )));
    }
    if found.is_empty() {
        lines.push(Line::raw("  no other pod"));
    }
    lines
}

fn findings(app: &App, row: &ContainerFrame, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("findings, and the change", app.look.dim())];
    let Some(advice) = app.advice.get(&key(row)) else {
        lines.push(Line::raw(match app.position {
            Some(_) => "  a recording has none; cpuwarden advise shows those of a running agent",
            None if app.has_ended(row) => "  none: the container has ended",
            None => "  not available yet",
        }));
        return lines;
    };
    for change in &advice.changes {
        let (mark, style) =
            if change.is_warning { ("!", app.look.warm()) } else { ("-", app.look.dim()) };
        let text = format!("{}: {}", change.finding, change.change);
        for (at, part) in
            wrapped(&text, width.saturating_sub(4), 4, app.look).into_iter().enumerate()
        {
            let mark = if at == 0 { mark } else { " " };
            lines
                .push(Line::from(vec![Span::styled(format!("  {mark} "), style), Span::raw(part)]));
        }
    }
    if advice.changes.is_empty() {
        lines.push(Line::raw("  nothing to change"));
    }
    for part in wrapped(&advice.pending, width.saturating_sub(4), 2, app.look) {
        lines.push(Line::styled(format!("  {part}"), app.look.dim()));
    }
    lines
}
