//! What earlier exclusive pods hold.

use kernel_text::CpuSet;

use crate::policy::Exclusivity;

/// One exclusive pod's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// What it asked to be kept apart from.
    pub exclusive: Exclusivity,
}

/// Everything that exclusive pods hold; a CPU may have several holders only where a request says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    holds: Vec<Hold>,
}

impl Taken {
    /// Adds one pod's CPUs.
    pub fn add(&mut self, cpus: CpuSet, exclusive: Exclusivity) {
        self.holds.push(Hold { cpus, exclusive });
    }

    /// Every hold, in the order in which it was added.
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// CPUs with at least one holder.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.holds.iter().fold(CpuSet::new(), |all, hold| all.union(&hold.cpus))
    }
}

impl FromIterator<Hold> for Taken {
    fn from_iter<I: IntoIterator<Item = Hold>>(holds: I) -> Self {
        Self { holds: holds.into_iter().collect() }
    }
}
