//! CPUs held by earlier exclusive pods.

use kernel_text::CpuSet;

use crate::policy::Exclusivity;

/// CPUs of one exclusive pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// CPUs of the pod.
    pub cpus: CpuSet,
    /// Requested separation from other pods.
    pub exclusive: Exclusivity,
}

/// All CPUs held by exclusive pods; a CPU may have several holders only if a request allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    holds: Vec<Hold>,
}

impl Taken {
    /// Adds one pod's CPUs.
    pub fn add(&mut self, cpus: CpuSet, exclusive: Exclusivity) {
        self.holds.push(Hold { cpus, exclusive });
    }

    /// All holds, in the order in which they were added.
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
