//! The first table: which pods are slowed, and by whom.

use std::ops::Range;

use api::{CauseKind, Frame, SlowedReason, Verdict};
use console::table;

/// Columns of numbers.
const NUMBERS: Range<usize> = 2..5;
/// Share of the CPUs that others must use so that the demo is not to be expected to show what it
/// should.
const BUSY: f64 = 0.25;

/// The verdicts as a table of at most `width` columns.
pub(crate) fn table(frame: &Frame, width: usize) -> String {
    if frame.verdicts.is_empty() {
        return "No pod is slowed.\n".to_owned();
    }
    let head = ["POD", "SLOWED BY", "SLOWED", "LOST", "SLOWED FOR"].map(str::to_owned);
    let rows = frame.verdicts.iter().map(|verdict| {
        [
            format!("{}/{}", verdict.victim.namespace, verdict.victim.pod),
            by(verdict),
            format!("×{:.1}", verdict.factor()),
            format!("{:.0} %", verdict.share * 100.0),
            format!("{:.0} s", verdict.slowed_seconds.min(60.0)),
        ]
    });
    let cells: Vec<Vec<String>> = std::iter::once(head).chain(rows).map(Vec::from).collect();
    table::render_within(&cells, NUMBERS, width)
}

/// The cause in words; of several, the largest.
fn by(verdict: &Verdict) -> String {
    match (verdict.cause, verdict.culprits.first()) {
        (CauseKind::Several, Some(most)) => format!("several, most of all {}", most.name()),
        _ => verdict.slowed_by(),
    }
}

/// Why no pod is slowed by another in this frame, although the demo makes one wait; `None` if one
/// is, or if nothing explains it.
pub(crate) fn missing(frame: &Frame) -> Option<String> {
    let is_named =
        |verdict: &Verdict| verdict.reason == SlowedReason::Neighbor && verdict.culprit().is_some();
    if frame.verdicts.iter().any(is_named) {
        return None;
    }
    let node = &frame.node;
    if !["continuous", "bursts"].contains(&node.trace.mode.as_str()) {
        let why = node.trace.reason.trim_start_matches("off: ");
        // Without a reason the trace has not started yet.
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        return Some(format!("waits are not traced here, so who slows whom is unknown{why}"));
    }
    let busy: f64 = node.cpus.iter().filter_map(|cpu| cpu.busy).sum();
    let used: f64 = frame.containers.iter().filter_map(|row| row.rates.usage_cores).sum();
    let others = busy - used + node.steal.unwrap_or_default();
    let cpus = node.cpus.len();
    (others > BUSY * cpus as f64).then(|| {
        format!(
            "this machine is too busy to show who slows whom: processes outside of the demo take {others:.1} of \
             its {cpus} CPUs"
        )
    })
}

#[cfg(test)]
mod tests {
    use api::{ContainerFrame, CpuFrame, Culprit, NodeFrame, PodName, Rates, Trace};

    use super::*;

    fn verdict() -> Verdict {
        let culprit = Culprit {
            namespace: "search".into(),
            kind: "StatefulSet".into(),
            name: "index".into(),
            ..Culprit::default()
        };
        Verdict {
            victim: PodName { namespace: "batch".into(), pod: "encode".into() },
            reason: SlowedReason::Neighbor,
            cause: CauseKind::One,
            culprits: vec![culprit],
            share: 0.75,
            slowed_seconds: 9.0,
            ..Verdict::default()
        }
    }

    /// A second of two CPUs, of which the demo uses 0.2.
    fn frame(busy: f64, verdicts: Vec<Verdict>) -> Frame {
        let rates = Rates { usage_cores: Some(0.2), ..Rates::default() };
        let cpu = |cpu| CpuFrame { cpu, busy: Some(busy), ..CpuFrame::default() };
        Frame {
            node: NodeFrame {
                trace: Trace { mode: "continuous".into(), reason: String::new() },
                cpus: vec![cpu(0), cpu(1)],
                ..NodeFrame::default()
            },
            containers: vec![ContainerFrame { rates, ..ContainerFrame::default() }],
            verdicts,
            ..Frame::default()
        }
    }

    #[test]
    fn the_table_names_the_victim_its_cause_and_how_much() {
        let text = table(&frame(0.1, vec![verdict()]), 80);
        let row = text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row, "batch/encode search/index ×4.0 75 % 9 s", "{text}");
        let several = Verdict { cause: CauseKind::Several, ..verdict() };
        assert!(
            table(&frame(0.1, vec![several]), 80).contains("  several, most of all search/index  ")
        );
        assert_eq!(table(&frame(0.1, Vec::new()), 80), "No pod is slowed.\n");
    }

    #[test]
    fn a_machine_that_is_too_busy_to_show_it_is_reported() {
        let busy = missing(&frame(0.9, Vec::new())).unwrap();
        assert!(busy.contains("too busy") && busy.ends_with("take 1.6 of its 2 CPUs"), "{busy}");
        assert_eq!(missing(&frame(0.9, vec![verdict()])), None);
        assert_eq!(missing(&frame(0.3, Vec::new())), None);
        let mut untraced = frame(0.9, Vec::new());
        untraced.node.trace = Trace { mode: "off".into(), reason: "off: no BTF".into() };
        assert!(missing(&untraced).unwrap().ends_with("unknown (no BTF)"));
    }
}
