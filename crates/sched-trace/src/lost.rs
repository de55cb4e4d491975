//! Lost time of each pod by what ran meanwhile, as monotonic counters. Pure.

use std::collections::BTreeMap;

use crate::waits::{LostTo, Owners, PodId, TracedLoss};

/// Lost time of all victims.
#[derive(Debug, Default)]
pub(crate) struct LostTable {
    victims: BTreeMap<PodId, Victim>,
}

#[derive(Debug, Default)]
struct Victim {
    by: BTreeMap<LostTo, u64>,
    wakeups: u64,
    late_wakeups: u64,
}

impl LostTable {
    pub(crate) fn add(&mut self, victim: PodId, to: LostTo, ns: u64) {
        if ns > 0 {
            *self.victims.entry(victim).or_default().by.entry(to).or_default() += ns;
        }
    }

    pub(crate) fn add_wakeups(&mut self, victim: PodId, wakeups: u64, late: u64) {
        if wakeups > 0 {
            let victim = self.victims.entry(victim).or_default();
            victim.wakeups += wakeups;
            victim.late_wakeups += late;
        }
    }

    /// Removes victims that no longer exist, and culprits that no longer have a name.
    pub(crate) fn retain(&mut self, owners: &dyn Owners) {
        self.victims.retain(|&victim, _| owners.has_pod(victim));
        for victim in self.victims.values_mut() {
            victim.by.retain(|to, _| match *to {
                LostTo::Pod(pod) => owners.has_name(pod),
                LostTo::System | LostTo::Unattributed => true,
            });
        }
    }

    /// The counters, by victim.
    pub(crate) fn rows(&self) -> impl Iterator<Item = TracedLoss> {
        self.victims.iter().map(|(&victim, lost)| TracedLoss {
            victim,
            by: lost.by.iter().map(|(&to, &ns)| (to, ns)).collect(),
            wakeups: lost.wakeups,
            late_wakeups: lost.late_wakeups,
        })
    }
}
