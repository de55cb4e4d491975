//! The keys, and the meaning of each column.

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
    ("USED, LIMIT", "CPU use and the lowest CPU limit over the container and its pod, cores"),
    ("OWN", "share of the time in which its own limit throttled it"),
    ("ABOVE", "time throttled each second by a limit above the container, summed over CPUs"),
    ("NEIGHBOR", "time that its threads waited each second while another pod was running"),
    ("SYSTEM", "time that its threads waited each second for the host's services and the kernel"),
    ("SELF", "time that its threads waited each second for the pod's own threads"),
    ("SMT", "time each second on a CPU while another pod ran on the core's other thread"),
    (
        "CONTENTION",
        "without the trace: the least time that its threads waited each second for any other thread",
    ),
    (
        "WORST AGGRESSOR",
        "the cause by the verdict: a workload with at least half of the lost time, several, or system (the host)",
    ),
    ("LAST MINUTE", "time lost in each second; a full bar is one second per second or more"),
    (
        "contention",
        "in the first line: of Guaranteed and Burstable pods together; then of each class, G Guaranteed, B Burstable, BE BestEffort",
    ),
    ("-", "the kernel or the configuration does not provide the value"),
];

pub(super) fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Keys", app.look.strong())];
    KEYS.iter().for_each(|(name, text)| add(&mut lines, app, width, name, text));
    lines.push(Line::default());
    lines.push(Line::styled(
        "Columns: those that do not fit are left out, the least important first",
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
