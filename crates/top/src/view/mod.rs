//! Draws the state: headline, the current view, and the keys.

mod detail;
mod headline;
mod help;
mod lines;
mod table;
mod topology;

use api::Contention;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use lines::wrapped;

use crate::app::{App, View};
use crate::cause;
use crate::history::key;
use crate::look::Look;
use crate::rows;
use crate::text;

/// Number of lines below which only the table is drawn.
const LOW: usize = 12;
/// Maximum number of lines of the trace's state.
const TRACE_LINES: usize = 3;

impl App {
    /// Draws everything into the area.
    pub fn render(&mut self, area: Rect, buffer: &mut Buffer) {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let mut lines = self.head(width, height >= LOW);
        let rest = height.saturating_sub(lines.len() + 1);
        let mut body = self.body(width, rest);
        body.resize_with(rest, Line::default);
        lines.extend(body);
        lines.push(self.foot());
        for (y, line) in (area.y..area.bottom()).zip(lines) {
            buffer.set_line(area.x, y, &clipped(line, width, self.look), area.width);
        }
    }

    fn body(&mut self, width: usize, height: usize) -> Vec<Line<'static>> {
        self.page = height.saturating_sub(2).max(1);
        self.below = 0;
        let lines = match &self.view {
            _ if self.help => help::lines(self, width),
            View::Victims => {
                let (lines, columns) = table::victims(self, width, height);
                self.columns = columns;
                return lines;
            }
            View::Aggressors => return table::aggressors(self, width, height),
            View::Detail(shown) => detail::lines(self, shown, width, height),
            View::Topology => topology::lines(self, width),
        };
        self.scroll = self.scroll.min(lines.len().saturating_sub(height));
        self.below = lines.len().saturating_sub(self.scroll + height);
        lines.into_iter().skip(self.scroll).take(height).collect()
    }

    /// Node, time and state; with `is_full` also, above a table, the load of the CPUs and the notes,
    /// and a sentence on the selected pod.
    fn head(&self, width: usize, is_full: bool) -> Vec<Line<'static>> {
        let mut lines = vec![headline::line(self, width)];
        let is_table = matches!(self.view, View::Victims | View::Aggressors) && !self.help;
        if is_full && is_table {
            lines.extend(headline::cpus(self, width));
            for note in &self.notes {
                let note = wrapped(note, width, 2, self.look);
                lines.extend(note.into_iter().map(|note| Line::styled(note, self.look.dim())));
            }
        }
        lines.extend(self.state(width));
        if is_full {
            let sentence = self.sentence(width).unwrap_or_default();
            let style = self.look.strong();
            lines.push(Line::styled(text::fit(&sentence, width, self.look), style));
        }
        lines
    }

    /// State of the connection and of the trace, and the order of the rows.
    fn state(&self, width: usize) -> Vec<Line<'static>> {
        let look = self.look;
        if !self.status.is_empty() {
            let lines = wrapped(&self.status, width, TRACE_LINES, look);
            return lines.into_iter().map(|line| Line::styled(line, look.bad())).collect();
        }
        let Some(frame) = &self.frame else { return vec![Line::default()] };
        let trace = &frame.node.trace;
        let (text, style) = match trace.mode.as_str() {
            "continuous" => ("waits are traced".to_owned(), look.dim()),
            "bursts" => {
                ("waits are traced in bursts: all waits are estimates".to_owned(), look.dim())
            }
            mode => {
                let mode = if mode == "detached" { "paused (over its budget)" } else { "off" };
                let why = trace.reason.trim_start_matches("off: ");
                let why = if why.is_empty() { "it has not started yet" } else { why };
                let text = format!(
                    "trace {mode}: {}. WAITED is at least the time that it waited.",
                    text::clean(why)
                );
                (text, look.warm())
            }
        };
        let mut lines = wrapped(&text, width, TRACE_LINES, look);
        let order = self.order();
        let fits = |line: &str, more: &str| line.chars().count() + more.chars().count() <= width;
        match lines.last_mut().filter(|line| fits(line, &order)) {
            Some(last) => last.push_str(&order),
            None => lines.push(order.trim_start().to_owned()),
        }
        if let Some(last) = lines.last_mut() {
            let by_class = classes(&frame.node.contention).into_iter();
            let fitting = by_class.into_iter().find(|classes| fits(last, classes));
            last.push_str(&fitting.unwrap_or_default());
        }
        lines.into_iter().map(|line| Line::styled(line, style)).collect()
    }

    /// Order and filter of the table, where they are not the usual ones.
    fn order(&self) -> String {
        let mut text = String::new();
        if self.view == View::Victims {
            let reversed = if self.is_ascending { ", reversed" } else { "" };
            text = format!("  sorted by {}{reversed}", self.sort.name());
        }
        let only = self.only.as_ref().filter(|_| self.view != View::Aggressors);
        let typed = Some(self.filter()).filter(|filter| !filter.is_empty());
        let filters: Vec<&str> =
            only.map(|only| only.label.as_str()).into_iter().chain(typed).collect();
        if !filters.is_empty() {
            text += &format!("  filter: {}", filters.join(", "));
        }
        text
    }

    fn sentence(&self, width: usize) -> Option<String> {
        let frame = self.frame.as_ref()?;
        let row = match &self.view {
            View::Detail(shown) => {
                let rows = self.containers_of(shown);
                rows.into_iter().find(|row| key(row) == *shown)?
            }
            View::Aggressors => return self.harm_sentence(width),
            _ => *self.victims().get(self.selection().0)?,
        };
        if self.has_ended(row) {
            return Some(format!("{}: has ended", rows::full_name(row)));
        }
        Some(cause::sentence(row, frame, width, self.look))
    }

    fn harm_sentence(&self, width: usize) -> Option<String> {
        let rows = self.aggressors();
        let row = rows.get(self.selection().0)?;
        let (name, now) = (cause::pod(&row.aggressor), text::percent(Some(row.now)));
        let worst = row.worst.as_ref().map(cause::pod).unwrap_or_default();
        let most = if worst.is_empty() { "" } else { ", most " };
        let harm = format!(": {} pods wait for it, {now} of the time{most}", row.victims);
        let room = width.saturating_sub(harm.chars().count());
        let [name, worst] = text::shorten([&name, &worst], room, self.look);
        Some(format!("{name}{harm}{worst}"))
    }

    fn foot(&self) -> Line<'static> {
        let look = self.look;
        if self.is_typing {
            return Line::from(vec![
                Span::styled("filter: ", look.strong()),
                Span::raw(format!("{}_", self.filter())),
                Span::styled("  !word excludes; Enter keeps it, Esc clears it", look.dim()),
            ]);
        }
        if let Some(typed) = &self.typed_time {
            return Line::from(vec![
                Span::styled("time (UTC): ", look.strong()),
                Span::raw(format!("{typed}_")),
                Span::styled("  03:04, 2026-11-22T03:04:05Z or -10m; Enter goes there", look.dim()),
            ]);
        }
        let scroll = match self.below {
            0 => "arrows scroll".to_owned(),
            below => format!("arrows scroll ({below} more below)"),
        };
        let keys: &[&str] = match &self.view {
            _ if self.help => &["Esc back", &scroll, "q quit"],
            View::Victims => &[
                "q quit",
                "? help",
                "/ filter",
                "s sort",
                "a aggressors",
                "t CPUs",
                "p pause",
                "Enter pod",
            ],
            View::Aggressors => &[
                "q quit",
                "? help",
                "/ filter",
                "s sort",
                "a victims",
                "t CPUs",
                "p pause",
                "Enter pod",
            ],
            View::Detail(_) => {
                &["Esc back", "Tab container", &scroll, "p pause", "? help", "q quit"]
            }
            View::Topology => &["Esc back", &scroll, "p pause", "? help", "q quit"],
        };
        let style = |key: &str| match key == scroll && self.below > 0 {
            true => look.warm(),
            false => look.dim(),
        };
        let key = |(at, key): (usize, &&str)| {
            let space = if at == 0 { "" } else { "  " };
            Span::styled(format!("{space}{key}"), style(key))
        };
        Line::from_iter(keys.iter().enumerate().map(key))
    }
}

/// Contention of each QoS class, in full and in short; nothing where it is not known.
fn classes(contention: &Contention) -> Vec<String> {
    let bounds = [contention.guaranteed, contention.burstable, contention.best_effort];
    let text = |names: [&str; 3]| {
        let known = names.iter().zip(bounds).filter_map(|(name, bounds)| Some((name, bounds?)));
        let classes: Vec<String> =
            known.map(|(name, bounds)| format!("{name} {}", text::percents(bounds))).collect();
        format!("  contention: {}", classes.join(", "))
    };
    if bounds.iter().all(Option::is_none) {
        return Vec::new();
    }
    [["Guaranteed", "Burstable", "BestEffort"], ["G", "B", "BE"]].map(text).into()
}

/// A line of at most this width; a longer one is cut at its end, with a mark.
fn clipped(mut line: Line<'static>, width: usize, look: Look) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let mut left = width.saturating_sub(1);
    for span in &mut line.spans {
        let text: String = span.content.chars().take(left).collect();
        left -= text.chars().count();
        span.content = text.into();
    }
    line.spans.push(Span::raw(look.cut().to_string()));
    line
}

/// The table as plain lines: the state of the trace, and all rows.
pub(crate) fn plain_lines(app: &App, width: usize) -> Vec<String> {
    let mut lines = vec![headline::line(app, width)];
    lines.extend(app.state(width));
    lines.extend(table::all_victims(app, width));
    lines.into_iter().map(|line| clipped(line, width, app.look).to_string()).collect()
}
