//! The keys, and the meaning of each column.

use console::LEGEND;
use ratatui::text::{Line, Span};

use super::lines::wrapped;
use crate::app::App;
use crate::keys::KEYS;

/// Width of the keys and columns.
const NAME: usize = 16;

/// Columns and their meaning.
const MEANINGS: &[(&str, &str)] = &[
    (
        "first letter",
        "main cause of the delay, by the verdict if there is one: L its own limit, A a limit above it (the pod's), N other pods, S services of the host, T its own threads, C not known (without the trace); x the container has ended",
    ),
    (
        "y, b",
        "y: the best-effort pod yields CPU (--best-effort); b: the container's limit may burst (--burst)",
    ),
    (
        "OWN, ABOVE",
        "throttled, of the time: by its own limit; by a limit above the container, summed over CPUs",
    ),
    ("OTHERS", "waited for other pods, of the time, summed over threads: can exceed 100%"),
    ("SYSTEM", "the same for the host's services and the kernel"),
    ("SELF", "the same for the pod's own threads; not lost"),
    ("SMT", "of the time, on a CPU while another pod ran on the core's other thread"),
    (
        "WAITED",
        "without the trace: at least this share of the time it waited for any other thread, summed over threads",
    ),
    (
        "SLOWED BY",
        "the cause by the verdict: a workload with at least half of the lost time, several, the host, or its own limit",
    ),
    ("LAST MINUTE", "time lost in each second; a full bar is one second per second or more"),
    (
        "contention",
        "in the first line: share of the time in which some thread waited, of Guaranteed and Burstable pods together; then of each class, G Guaranteed, B Burstable, BE BestEffort",
    ),
    ("-", "the kernel or the configuration does not provide the value"),
];

pub(super) fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Keys", app.look.strong())];
    KEYS.iter().for_each(|(name, text)| add(&mut lines, app, width, name, text));
    lines.push(Line::default());
    lines.push(Line::styled("Words", app.look.strong()));
    // The terminal's text is ASCII.
    let words = LEGEND.map(|(word, text)| (word.replace('×', "x"), text));
    words.iter().for_each(|(word, text)| add(&mut lines, app, width, word, text));
    lines.push(Line::default());
    lines.push(Line::styled(
        "Columns: what does not fit is left out; for long names, also empty columns",
        app.look.strong(),
    ));
    MEANINGS.iter().for_each(|(name, text)| add(&mut lines, app, width, name, text));
    lines
}

fn add(lines: &mut Vec<Line<'static>>, app: &App, width: usize, name: &str, text: &str) {
    let parts = wrapped(text, width.saturating_sub(NAME + 1), 6, app.look);
    for (at, part) in parts.into_iter().enumerate() {
        let name = if at == 0 { name } else { "" };
        lines.push(Line::from(vec![
            Span::styled(format!("{name:<NAME$} "), app.look.warm()),
            Span::raw(part),
        ]));
    }
}
