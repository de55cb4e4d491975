//! Lost time of each pod by what ran meanwhile, since the last report. Pure.

use std::collections::BTreeMap;

use crate::waits::{LostPart, LostTo, PodId, TracedLoss};

/// Lost time of all victims.
#[derive(Debug, Default)]
pub(crate) struct LostTable {
    victims: BTreeMap<PodId, Victim>,
}

#[derive(Debug, Default)]
struct Victim {
    /// In the order of the samples, several parts per holder.
    parts: Vec<LostPart>,
    wakeups: u64,
    late_wakeups: u64,
}

impl LostTable {
    /// `is_late`: a part of the time may have been lost before the last report.
    pub(crate) fn add(&mut self, victim: PodId, to: LostTo, ns: u64, is_late: bool) {
        if ns > 0 {
            let late_ns = if is_late { ns } else { 0 };
            self.victims.entry(victim).or_default().parts.push(LostPart { to, ns, late_ns });
        }
    }

    pub(crate) fn add_wakeups(&mut self, victim: PodId, wakeups: u64, late: u64) {
        if wakeups > 0 {
            let victim = self.victims.entry(victim).or_default();
            victim.wakeups += wakeups;
            victim.late_wakeups += late;
        }
    }

    /// Empties the table into rows by victim.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = TracedLoss> + use<> {
        std::mem::take(&mut self.victims).into_iter().map(|(victim, lost)| TracedLoss {
            victim,
            by: merged(lost.parts),
            wakeups: lost.wakeups,
            late_wakeups: lost.late_wakeups,
        })
    }
}

/// One part per holder.
fn merged(mut parts: Vec<LostPart>) -> Vec<LostPart> {
    parts.sort_unstable_by_key(|part| part.to);
    parts.dedup_by(|part, sum| {
        let is_same = part.to == sum.to;
        if is_same {
            sum.ns += part.ns;
            sum.late_ns += part.late_ns;
        }
        is_same
    });
    parts
}
