//! Draws the state: headline, the view in front, and the keys.

mod detail;
mod help;
mod table;
mod topology;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::app::{App, View};
use crate::cause;
use crate::history::key;
use crate::look::Look;
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
        lines.push(self.foot(width));
        for (y, line) in (area.y..area.bottom()).zip(&lines) {
            buffer.set_line(area.x, y, line, area.width);
        }
    }

    fn body(&mut self, width: usize, height: usize) -> Vec<Line<'static>> {
        self.page = height.saturating_sub(2).max(1);
        let lines = match &self.view {
            _ if self.help => help::lines(self, width),
            View::Victims => return table::victims(self, width, height),
            View::Aggressors => return table::aggressors(self, width, height),
            View::Detail(shown) => detail::lines(self, shown, width, height),
            View::Topology => topology::lines(self, width),
        };
        self.scroll = self.scroll.min(lines.len().saturating_sub(height));
        lines.into_iter().skip(self.scroll).take(height).collect()
    }

    /// Node, time and state; with `is_full` also the notes and a sentence on the selected pod.
    fn head(&self, width: usize, is_full: bool) -> Vec<Line<'static>> {
        let mut lines = vec![self.headline()];
        if is_full {
            for note in &self.notes {
                lines.extend(
                    wrapped(note, width, 2).into_iter().map(|note| styled(note, self.look)),
                );
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

    fn headline(&self) -> Line<'static> {
        let look = self.look;
        let Some(frame) = &self.frame else {
            return Line::styled("cpuwarden top  waiting for the first second", look.strong());
        };
        let node = &frame.node;
        let mut facts = vec![format!("{} UTC", text::clock(frame.at_ms))];
        facts.push(format!("{} containers", frame.containers.len()));
        if let Some(position) = self.position {
            let length = (position.end_ms - position.start_ms).max(1) as f64;
            let share = position.at_ms.saturating_sub(position.start_ms) as f64 / length;
            let speed = position.speed;
            facts.push(format!("recording {} x{speed}", text::percent(Some(share))));
        }
        if let Some(pressure) = node.pressure {
            facts.push(format!("pressure {}", text::percent(Some(pressure))));
        }
        if let Some(bounds) = node.contention.node {
            facts.push(format!("contention {}", text::percents(bounds)));
        }
        if let Some(state) = node.colocation.best_effort.as_ref().filter(|state| state.step > 0) {
            let mode = if state.enforcing { "" } else { " (observed)" };
            facts.push(format!("best effort: step {}{mode}", state.step));
        }
        if let Some(steal) = node.steal.filter(|steal| *steal >= 0.005) {
            facts.push(format!("steal {}", text::time(Some(steal))));
        }
        let name = format!("cpuwarden  {}", text::clean(&node.name));
        let mut spans = vec![Span::styled(name, look.strong())];
        // Before the facts, of which a narrow terminal cuts the last.
        if self.is_paused {
            spans.push(Span::styled("  PAUSED", look.warm().add_modifier(Modifier::BOLD)));
        }
        spans.push(Span::raw(format!("  {}", facts.join("  "))));
        Line::from(spans)
    }

    /// State of the connection and of the trace, and the order of the rows.
    fn state(&self, width: usize) -> Vec<Line<'static>> {
        let look = self.look;
        if !self.status.is_empty() {
            let lines = wrapped(&self.status, width, TRACE_LINES);
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
                    "trace {mode}: {}. Who makes whom wait is unknown; CONTENTION is the least time \
                     that threads waited for others.",
                    text::clean(why)
                );
                (text, look.warm())
            }
        };
        let mut lines = wrapped(&text, width, TRACE_LINES);
        let order = self.order();
        let fits = |line: &str| line.chars().count() + order.chars().count() <= width;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(last) => last.push_str(&order),
            None => lines.push(order.trim_start().to_owned()),
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
        if !self.filter.is_empty() {
            text += &format!("  filter: {}", self.filter);
        }
        text
    }

    fn sentence(&self, width: usize) -> Option<String> {
        let frame = self.frame.as_ref()?;
        let row = match &self.view {
            View::Detail(shown) => frame.containers.iter().find(|row| key(row) == *shown)?,
            View::Aggressors => return self.harm_sentence(),
            _ => *self.victims().get(self.selection().0)?,
        };
        Some(cause::sentence(row, frame, width, self.look))
    }

    fn harm_sentence(&self) -> Option<String> {
        let rows = self.aggressors();
        let row = rows.get(self.selection().0)?;
        let (name, now) = (cause::pod(&row.aggressor), text::time(Some(row.now)));
        let worst = row
            .worst
            .as_ref()
            .map_or(String::new(), |worst| format!(", most {}", cause::pod(worst)));
        Some(format!("{name}: {} pods wait for it, {now} each second{worst}", row.victims))
    }

    fn foot(&self, width: usize) -> Line<'static> {
        let look = self.look;
        if self.is_typing {
            return Line::from(vec![
                Span::styled("filter: ", look.strong()),
                Span::raw(format!("{}_", self.filter)),
                Span::styled("  Enter keeps it, Esc clears it", look.dim()),
            ]);
        }
        let keys: &[&str] = match &self.view {
            _ if self.help => &["Esc back", "q quit"],
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
            View::Aggressors => {
                &["q quit", "? help", "/ filter", "a victims", "t CPUs", "p pause", "Enter pod"]
            }
            View::Detail(_) => {
                &["Esc back", "Tab container", "arrows scroll", "p pause", "? help", "q quit"]
            }
            View::Topology => &["Esc back", "arrows scroll", "p pause", "? help", "q quit"],
        };
        Line::styled(text::fit(&keys.join("  "), width, look).trim_end().to_owned(), look.dim())
    }
}

fn styled(note: String, look: Look) -> Line<'static> {
    Line::styled(note, look.dim())
}

/// The table as plain lines: the state of the trace, and all rows.
pub(crate) fn plain_lines(app: &App, width: usize) -> Vec<String> {
    let mut lines = vec![app.headline()];
    lines.extend(app.state(width));
    lines.extend(table::all_victims(app, width));
    lines.iter().map(ToString::to_string).collect()
}

/// Splits a text into at most `most` lines between words; what does not fit is cut.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.truncate(most);
    lines
}

/// Text of exactly this width, aligned right.
fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}
