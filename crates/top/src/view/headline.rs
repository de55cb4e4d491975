//! The first line: the node, the time, and how much its threads wait.

use api::Frame;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::look::Look;
use crate::text;

/// Width that a longer name of the node keeps, as long as another part can be left out instead.
const MIN_NODE: usize = 20;
/// Width of the screen from which the line begins with the name of the program. It depends on
/// nothing else: the name of the node stays where it is.
const WITH_PROGRAM: usize = 100;
/// Distance between two facts.
const GAP: usize = 2;

/// The facts, and as much of the node's name as fits beside them. Where too little fits, the
/// number of containers is left out.
pub(super) fn line(app: &App, width: usize) -> Line<'static> {
    let look = app.look;
    let Some(frame) = &app.frame else {
        return Line::styled("cpuwarden top  waiting for the first second", look.strong());
    };
    let name = text::clean(&frame.node.name);
    let paused = if app.is_paused { "  PAUSED" } else { "" };
    let program = if width >= WITH_PROGRAM { "cpuwarden  " } else { "" };
    let room = |facts: &[String]| {
        let facts: usize = facts.iter().map(|fact| GAP + fact.chars().count()).sum();
        width.saturating_sub(program.len() + paused.len() + facts)
    };
    let mut facts = facts(app, frame, true);
    if room(&facts) < MIN_NODE.min(name.len()) {
        facts = self::facts(app, frame, false);
    }
    let node = node(&name, room(&facts), look);
    Line::from(vec![
        Span::styled(format!("{program}{node}"), look.strong()),
        // Before the facts, of which a narrow terminal cuts the last.
        Span::styled(paused, look.warm().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {}", facts.join("  "))),
    ])
}

fn facts(app: &App, frame: &Frame, with_containers: bool) -> Vec<String> {
    let node = &frame.node;
    let past = app.position.filter(|position| position.speed == 0.0);
    let mut facts = match past {
        Some(_) => vec![format!("{} UTC", text::date_time(frame.at_ms))],
        None => vec![format!("{} UTC", text::clock(frame.at_ms))],
    };
    if let Some(position) = past {
        let ago = position.end_ms.saturating_sub(position.at_ms);
        facts.push(format!("{} ago, Space: now", text::span(ago)));
    }
    if with_containers {
        facts.push(format!("{} containers", frame.containers.len()));
    }
    if let Some(position) = app.position.filter(|position| position.speed > 0.0) {
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
        facts.push(format!("steal {}", text::percent(Some(steal))));
    }
    facts
}

/// The load of each CPU, in the order of their numbers; nothing while no load is known. With more
/// CPUs than columns each bar is the busiest of several.
pub(super) fn cpus(app: &App, width: usize) -> Option<Line<'static>> {
    let cpus = &app.frame.as_ref()?.node.cpus;
    let known: Vec<f64> = cpus.iter().filter_map(|cpu| cpu.busy).collect();
    if known.is_empty() {
        return None;
    }
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let label = format!("{} CPUs {:>4} busy  ", cpus.len(), text::percent(Some(mean)));
    let loads: Vec<f32> =
        cpus.iter().map(|cpu| cpu.busy.map_or(f32::NAN, |busy| busy as f32)).collect();
    let room = width.saturating_sub(label.chars().count()).min(loads.len());
    Some(Line::from(vec![
        Span::styled(label, app.look.dim()),
        Span::raw(text::strip(&loads, room, 1.0, app.look)),
    ]))
}

/// The node's name in this width. If the host has a domain, the domain is cut first, since nodes
/// differ in the host.
fn node(name: &str, width: usize, look: Look) -> String {
    let host = name.split('.').next().unwrap_or(name);
    if name.len() > width && host.len() < name.len() && host.len() < width {
        return text::cut(name, width, look);
    }
    text::fit(name, width.min(name.len()), look)
}
