//! A plan with its inputs, shared by the passes and by decisions about new containers.

use std::sync::Arc;

use kernel_text::CpuSet;
use placement::{Current, Kubelet, Node, PlacementSettings, Plan, PlanError, Pod, Profiles, plan};

use crate::{Machine, PinnerConfig};

/// The operator's part of a plan's inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) reserved: CpuSet,
    pub(crate) settings: PlacementSettings,
    pub(crate) profiles: Profiles,
}

/// All inputs of a plan except the machine and the rules; equal inputs give the same plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PlanInputs {
    pub(crate) claims: Vec<Pod>,
    pub(crate) kubelet: Kubelet,
    pub(crate) ceiling: CpuSet,
    pub(crate) current: Current,
}

/// A plan with its inputs; a clone is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) from: Arc<PlanInputs>,
    pub(crate) plan: Arc<Plan>,
}

impl Rules {
    pub(crate) fn of(config: &PinnerConfig) -> Self {
        let PinnerConfig { reserved, settings, profiles, .. } = config;
        let (settings, profiles) = (settings.clone(), profiles.clone());
        Self { reserved: reserved.clone(), settings, profiles }
    }
}

impl PlanInputs {
    /// # Errors
    /// No CPU is left for pods.
    pub(crate) fn plan(&self, machine: &Machine, rules: &Rules) -> Result<Plan, PlanError> {
        // The scheduler does no load balancing on isolated CPUs: threads sent there pile up on one.
        let reserved = rules.reserved.union(&machine.isolated);
        let node = Node {
            topology: &machine.topology,
            allowed: &self.ceiling,
            reserved: &reserved,
            kubelet: &self.kubelet,
            settings: &rules.settings,
        };
        plan(&node, &self.claims, &rules.profiles, &self.current)
    }
}
