//! Input of a pass.

use std::collections::HashSet;
use std::sync::Arc;

use analysis::BurstForecasts;
use kernel_text::CpuSet;
use kubepods::{PodIndex, PodName};
use snapshot::NodeSnapshot;

use crate::pods::BestEffort;

/// Input of a pass.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The latest snapshot.
    pub snapshot: Arc<NodeSnapshot>,
    /// The pods.
    pub pods: Arc<PodIndex>,
    /// CPUs that containers have exclusively.
    pub exclusive: CpuSet,
    /// Namespace and name of the pods with exclusive CPUs.
    pub exclusive_pods: HashSet<PodName>,
    /// Forecasts of burst by container.
    pub forecasts: BurstForecasts,
    /// Whether a drain is requested.
    pub draining: bool,
}

impl Inputs {
    pub(crate) fn best_effort(&self) -> BestEffort {
        BestEffort::new(&self.snapshot, &self.pods)
    }
}
