//! The first line: the node, the time, and how much its threads wait.

use api::Frame;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::look::Look;
use crate::text;

/// Width that a longer name of the node keeps, as long as another part can be left out instead.
const MIN_NODE: usize = 20;
/// Distance between two facts.
const GAP: usize = 2;

/// The facts, and as much of the node's name as fits beside them. Where too little fits, the
/// number of containers is left out, then the name of the program.
pub(super) fn line(app: &App, width: usize) -> Line<'static> {
    let look = app.look;
    let Some(frame) = &app.frame else {
        return Line::styled("cpuwarden top  waiting for the first second", look.strong());
    };
    let name = text::clean(&frame.node.name);
    let paused = if app.is_paused { "  PAUSED" } else { "" };
    let (mut program, mut facts) = ("cpuwarden  ", facts(app, frame, true));
    let room = |program: &str, facts: &[String]| {
        let facts: usize = facts.iter().map(|fact| GAP + fact.chars().count()).sum();
        width.saturating_sub(program.len() + paused.len() + facts)
    };
    let least = MIN_NODE.min(name.len());
    if room(program, &facts) < least {
        facts = self::facts(app, frame, false);
    }
    if room(program, &facts) < least {
        program = "";
    }
    let node = node(&name, room(program, &facts), look);
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
        facts.push(format!("steal {}", text::time(Some(steal))));
    }
    facts
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
