//! The main cause of a container's delay, as a letter and as a sentence.

use api::{CauseKind, ContainerFrame, Frame, SlowedReason};

use crate::look::Look;
use crate::text;

/// Time lost below which a container counts as undisturbed, seconds per second.
const NOTEWORTHY: f64 = 0.005;
/// Least width of a pod's name in a sentence.
const MIN_NAME: usize = 12;

/// The main cause of a container's delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its own CPU limit.
    Own,
    /// A limit of the pod, or of a cgroup above it.
    Ancestor,
    /// Other pods.
    Neighbor,
    /// The host's services and the kernel.
    System,
    /// Other threads; without the trace it is not known whose.
    Contention,
    /// Its own threads.
    Threads,
}

impl Cause {
    /// The main cause in this frame; `None` if the container lost almost no time.
    pub(crate) fn of(row: &ContainerFrame) -> Option<(Self, f64)> {
        let rates = &row.rates;
        let waits_are_known = rates.neighbor.is_some() || rates.system.is_some();
        let causes = [
            (Self::Own, rates.throttled_own),
            (Self::Ancestor, rates.throttled_ancestor),
            (Self::Neighbor, rates.neighbor),
            (Self::System, rates.system),
            (Self::Contention, rates.contention.filter(|_| !waits_are_known)),
        ];
        let known = causes.into_iter().filter_map(|(cause, time)| Some((cause, time?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, time)| *time >= NOTEWORTHY)
    }

    /// The main cause by the verdict about the container's pod, else in this frame.
    pub(crate) fn judged(row: &ContainerFrame, frame: &Frame) -> Option<Self> {
        let Some((_, verdict)) = frame.verdict(row) else {
            return Self::of(row).map(|(cause, _)| cause);
        };
        Some(match verdict.reason {
            SlowedReason::Neighbor => Self::Neighbor,
            SlowedReason::System => Self::System,
            SlowedReason::Unknown => Self::Contention,
            SlowedReason::AncestorLimit => Self::Ancestor,
            SlowedReason::OwnLimit => Self::Own,
            SlowedReason::Own => Self::Threads,
        })
    }

    /// Letter in the first column.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Own => 'L',
            Self::Ancestor => 'A',
            Self::Neighbor => 'N',
            Self::System => 'S',
            Self::Contention => 'C',
            Self::Threads => 'T',
        }
    }
}

/// One sentence about the container: the verdict about its pod, or what it waits for. If the width
/// does not suffice, the names are shortened.
pub(crate) fn sentence(row: &ContainerFrame, frame: &Frame, width: usize, look: Look) -> String {
    let name = format!("{}/{}", text::clean(&row.namespace), text::clean(&row.pod));
    let rest = match frame.verdict(row) {
        // The terminal's text is ASCII.
        Some((_, verdict)) => text::clean(&verdict.summary.replace('×', "x")),
        None => measured(row),
    };
    let culprit = culprit(row, frame);
    let Some((start, end)) = rest.split_once(&*culprit).filter(|_| culprit.contains('/')) else {
        let room = width.saturating_sub(rest.chars().count() + 2).max(MIN_NAME);
        let name = text::fit(&name, room.min(name.chars().count()), look);
        return format!("{}: {rest}", name.trim_end());
    };
    let room = width.saturating_sub(start.chars().count() + end.chars().count() + 2);
    let [name, culprit] = text::shorten([&name, &culprit], room.max(2 * MIN_NAME), look);
    format!("{name}: {start}{culprit}{end}")
}

/// What a container without a verdict waits for, without a cause.
fn measured(row: &ContainerFrame) -> String {
    let Some((cause, time)) = Cause::of(row) else { return "no time lost".into() };
    // Recordings keep about four digits.
    let limit = row.limit_cores.map(|limit| (limit * 1000.0).round() / 1000.0);
    let limit = limit.map_or(String::new(), |limit| format!(" of {limit} cores"));
    let time = text::percent(Some(time));
    match cause {
        Cause::Own => {
            let share = text::percent(row.rates.throttled_share);
            format!("throttled {share} of the time by its own limit{limit}")
        }
        Cause::Ancestor => {
            format!("throttled {time} of the time by a limit{limit} above the container")
        }
        Cause::Neighbor => format!("waited {time} of the time for other pods"),
        Cause::System => format!("waited {time} of the time for services of the host"),
        Cause::Contention => format!("waited at least {time} of the time for other threads"),
        Cause::Threads => format!("waited {time} of the time for its own threads"),
    }
}

/// The name in the verdict about the container's pod; empty without one.
fn culprit(row: &ContainerFrame, frame: &Frame) -> String {
    let Some((_, verdict)) = frame.verdict(row) else { return String::new() };
    match (verdict.cause, verdict.culprits.first()) {
        (CauseKind::One, Some(culprit)) => text::clean(&culprit.name()),
        _ => String::new(),
    }
}

/// What slows the container's pod by its verdict, in a few words; empty without a verdict.
pub(crate) fn slowed_by(row: &ContainerFrame, frame: &Frame) -> String {
    let verdict = frame.verdict(row).map(|(_, verdict)| verdict);
    verdict.map_or(String::new(), |verdict| text::clean(&verdict.slowed_by()))
}

/// How many times longer the work of the container's pod took; empty without a verdict.
pub(crate) fn factor(row: &ContainerFrame, frame: &Frame) -> String {
    let verdict = frame.verdict(row).map(|(_, verdict)| verdict);
    verdict.map_or(String::new(), |verdict| format!("x{:.1}", verdict.factor()))
}

/// A pod's name: `namespace/pod`, or `system` and `other` alone.
pub(crate) fn pod(name: &api::PodName) -> String {
    match name.pod.is_empty() {
        true => text::clean(&name.namespace),
        false => format!("{}/{}", text::clean(&name.namespace), text::clean(&name.pod)),
    }
}
