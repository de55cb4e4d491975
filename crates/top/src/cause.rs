//! The main cause of a container's delay, as a letter and as a sentence.

use api::{ContainerFrame, Frame};

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

    /// Letter in the first column.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Own => 'L',
            Self::Ancestor => 'A',
            Self::Neighbor => 'N',
            Self::System => 'S',
            Self::Contention => 'C',
        }
    }
}

/// One sentence about the container: what delays it, by how much and because of whom. If the width
/// does not suffice, the names are shortened.
pub(crate) fn sentence(row: &ContainerFrame, frame: &Frame, width: usize, look: Look) -> String {
    let name = format!("{}/{}", text::clean(&row.namespace), text::clean(&row.pod));
    let (rest, aggressor) = predicate(row, frame);
    let least = if aggressor.is_empty() { MIN_NAME } else { 2 * MIN_NAME };
    let room = width.saturating_sub(rest.chars().count() + 2).max(least);
    let [name, aggressor] = text::shorten([&name, &aggressor], room, look);
    format!("{name}: {rest}{aggressor}")
}

/// The sentence between the names, and the name of the aggressor; empty without one.
fn predicate(row: &ContainerFrame, frame: &Frame) -> (String, String) {
    let Some((cause, time)) = Cause::of(row) else { return ("not delayed".into(), String::new()) };
    // Recordings keep about four digits.
    let limit = row.limit_cores.map(|limit| (limit * 1000.0).round() / 1000.0);
    let limit = limit.map_or(String::new(), |limit| format!(" of {limit} cores"));
    let time = text::time(Some(time));
    let text = match cause {
        Cause::Own => {
            let share = text::percent(row.rates.throttled_share);
            format!("throttled {share} of the time by its own limit{limit}")
        }
        Cause::Ancestor => {
            format!("throttled {time} each second by a limit{limit} above the container")
        }
        Cause::Neighbor => {
            if let Some((aggressor, _)) = frame.worst_aggressor(&row.pod_name()) {
                let text = format!("waits {time} each second for other pods, most for ");
                return (text, pod(aggressor));
            }
            format!("waits {time} each second for other pods")
        }
        Cause::System => format!("waits {time} each second for services of the host"),
        Cause::Contention => format!("waits at least {time} each second for other threads"),
    };
    (text, String::new())
}

/// A pod's name: `namespace/pod`, or `system` and `other` alone.
pub(crate) fn pod(name: &api::PodName) -> String {
    match name.pod.is_empty() {
        true => text::clean(&name.namespace),
        false => format!("{}/{}", text::clean(&name.namespace), text::clean(&name.pod)),
    }
}
