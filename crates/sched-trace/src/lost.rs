//! Lost time of each pod by what ran meanwhile, since the last report. Pure.

use foldhash::HashMap;

use crate::waits::{LostPart, LostTo, PodId, TracedLoss};

/// Lost time of all victims.
#[derive(Debug, Default)]
pub(crate) struct LostTable {
    /// Those that have lost time or woken up since the report before the last. They keep their memory.
    victims: HashMap<PodId, Victim>,
}

/// Lost time of one victim.
#[derive(Debug, Default)]
pub(crate) struct Victim {
    /// In the order of the samples, several parts per holder.
    parts: Vec<LostPart>,
    wakeups: u64,
    late_wakeups: u64,
}

impl LostTable {
    /// The lost time of a pod, to add to it.
    pub(crate) fn victim(&mut self, pod: PodId) -> &mut Victim {
        self.victims.entry(pod).or_default()
    }

    /// Empties the table into rows, in the order of the victims.
    pub(crate) fn take(&mut self) -> Vec<TracedLoss> {
        self.victims.retain(|_, victim| !victim.is_empty());
        let taken = self.victims.iter_mut().map(|(&victim, lost)| lost.take(victim));
        let mut rows: Vec<TracedLoss> = taken.collect();
        rows.sort_unstable_by_key(|row| row.victim);
        rows
    }
}

impl Victim {
    /// `is_late`: a part of the time may have been lost before the last report.
    pub(crate) fn add(&mut self, to: LostTo, ns: u64, is_late: bool) {
        if ns > 0 {
            let late_ns = if is_late { ns } else { 0 };
            self.parts.push(LostPart { to, ns, late_ns });
        }
    }

    pub(crate) fn add_wakeups(&mut self, wakeups: u64, late: u64) {
        self.wakeups += wakeups;
        self.late_wakeups += late;
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.wakeups == 0
    }

    fn take(&mut self, victim: PodId) -> TracedLoss {
        merge(&mut self.parts);
        let by = self.parts.clone();
        self.parts.clear();
        let (wakeups, late_wakeups) =
            (std::mem::take(&mut self.wakeups), std::mem::take(&mut self.late_wakeups));
        TracedLoss { victim, by, wakeups, late_wakeups }
    }
}

/// Leaves one part per holder.
fn merge(parts: &mut Vec<LostPart>) {
    parts.sort_unstable_by_key(|part| part.to);
    parts.dedup_by(|part, sum| {
        let is_same = part.to == sum.to;
        if is_same {
            sum.ns += part.ns;
            sum.late_ns += part.late_ns;
        }
        is_same
    });
}
