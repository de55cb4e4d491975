//! The CPUs by socket, NUMA node, cache and core, with load and owner.

use std::collections::{BTreeMap, BTreeSet};

use api::{CpuFrame, Frame, PodName};
use kernel_text::CpuSet;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::cause;
use crate::look::Look;
use crate::text;

/// Letters of the owners; further owners share the last one.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ*";
/// Mark of a CPU that several pods, or none, may use.
const SHARED: char = '.';

/// Least width of an owner's name beside a long list of CPUs.
const MIN_OWNER: usize = 12;

/// Socket, NUMA node and last-level cache.
type CpuGroup = (Option<u32>, Option<u32>, Option<u32>);

pub(super) fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(frame) = &app.frame else { return Vec::new() };
    if frame.node.cpus.is_empty() {
        return vec![Line::raw("no data about CPUs in this second")];
    }
    let owners = owners(frame);
    let letters: BTreeMap<&PodName, char> = names(&owners).into_iter().zip(letters()).collect();
    let letter = |cpu: u32| owners.get(&cpu).map_or(SHARED, |pod| letters[pod]);
    let mut places: BTreeMap<CpuGroup, BTreeMap<u32, Vec<&CpuFrame>>> = BTreeMap::new();
    for cpu in &frame.node.cpus {
        let cores = places.entry((cpu.socket, cpu.numa_node, cpu.llc)).or_default();
        cores.entry(cpu.core.unwrap_or(cpu.cpu)).or_default().push(cpu);
    }
    let mut lines = vec![Line::styled(
        "each [ ] is a core; for each of its threads: CPU, load, owner (. shared)",
        app.look.dim(),
    )];
    for (place, cores) in &places {
        lines.push(Line::styled(place_title(*place), app.look.strong()));
        lines.extend(flow(cores.values().map(|threads| core(threads, &letter, app.look)), width));
    }
    lines.push(Line::default());
    for (pod, letter) in &letters {
        let cpus: Vec<u32> =
            owners.iter().filter(|(_, owner)| *owner == *pod).map(|(cpu, _)| *cpu).collect();
        let list = format!("  CPUs {}", CpuSet::from_iter(cpus));
        let room = width.saturating_sub(2 + list.len()).max(MIN_OWNER);
        let name = text::fit(&cause::pod(pod), room, app.look);
        lines.push(Line::raw(format!("{letter} {}{list}", name.trim_end())));
    }
    if letters.is_empty() {
        lines.push(Line::raw("no pod has CPUs of its own: all share"));
    }
    lines
}

fn letters() -> impl Iterator<Item = char> {
    LETTERS.chars().chain(std::iter::repeat('*'))
}

fn names(owners: &BTreeMap<u32, PodName>) -> BTreeSet<&PodName> {
    owners.values().collect()
}

/// The only pod that may use a CPU, of the pods that are restricted to a part of the CPUs.
fn owners(frame: &Frame) -> BTreeMap<u32, PodName> {
    let mut users: BTreeMap<u32, BTreeSet<PodName>> = BTreeMap::new();
    for row in &frame.containers {
        let Some(cpus) = row.cpus.as_ref().and_then(|cpus| cpus.parse::<CpuSet>().ok()) else {
            continue;
        };
        for cpu in cpus.iter() {
            users.entry(cpu).or_default().insert(row.pod_name());
        }
    }
    let mut of_one: BTreeMap<u32, PodName> = BTreeMap::new();
    for (cpu, mut pods) in users {
        if let (1, Some(pod)) = (pods.len(), pods.pop_first()) {
            of_one.insert(cpu, pod);
        }
    }
    // The only pod of a node that may use all CPUs does not own them.
    let is_restricted = |pod: &PodName| {
        let mut rows = frame.containers.iter().filter(|row| row.pod_name() == *pod);
        rows.all(|row| {
            let cpus = row.cpus.as_ref().and_then(|cpus| cpus.parse::<CpuSet>().ok());
            cpus.is_some_and(|cpus| cpus.iter().count() < frame.node.cpus.len())
        })
    };
    of_one.retain(|_, pod| is_restricted(pod));
    of_one
}

fn place_title((socket, numa_node, llc): CpuGroup) -> String {
    let part = |name: &str, number: Option<u32>| number.map(|number| format!("{name} {number}"));
    let parts = [part("socket", socket), part("NUMA node", numa_node), part("L3 cache", llc)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "CPUs".to_owned() } else { parts.join("  ") }
}

/// A core as spans: one cell per thread.
fn core(threads: &[&CpuFrame], letter: &impl Fn(u32) -> char, look: Look) -> Vec<Span<'static>> {
    let mut spans = vec![Span::raw("[")];
    for thread in threads {
        let load = thread.busy.map_or("   -".to_owned(), |busy| format!("{:>3.0}%", busy * 100.0));
        let cell = format!(
            "{:>3}{}{load}{}",
            thread.cpu,
            look.bar(thread.busy.unwrap_or(0.0)),
            letter(thread.cpu)
        );
        spans.push(Span::styled(cell, look.heat(if thread.busy >= Some(0.9) { 1.0 } else { 0.0 })));
    }
    spans.push(Span::raw("] "));
    spans
}

/// Puts as many cores on each line as fit.
fn flow(cores: impl Iterator<Item = Vec<Span<'static>>>, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for core in cores {
        let needed: usize = core.iter().map(Span::width).sum();
        match lines.last_mut() {
            Some(line) if line.width() + needed <= width + 1 => line.spans.extend(core),
            _ => lines.push(Line::from(core)),
        }
    }
    lines
}
