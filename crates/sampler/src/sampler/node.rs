//! The node itself: its own files, its features, and the rule between shares and weights.

use std::time::Duration;

use cgroupfs::Hierarchy;
use kernel_text::WeightRule;
use snapshot::FeatureState;

use super::{Sampler, SamplerConfig};
use crate::features;
use crate::probe::NodeProbe;
use crate::series::{ContainerSeries, SeriesTable};

/// State of the node beside its cgroups.
pub(super) struct NodeState {
    pub(super) probe: NodeProbe,
    pub(super) features: Vec<FeatureState>,
    /// Whether a container has shown the rule between shares and weights.
    pub(super) is_weight_rule_shown: bool,
    /// The rule in the published rows.
    pub(super) published_rule: Option<WeightRule>,
}

impl NodeState {
    pub(super) fn new(config: &SamplerConfig, hierarchy: &Hierarchy) -> Self {
        let probe = NodeProbe::new(&config.proc_root, &config.sys_root, hierarchy);
        Self { probe, features: Vec::new(), is_weight_rule_shown: false, published_rule: None }
    }

    /// Derives the rule between shares and weights from containers with a known request. The
    /// majority decides: after an upgrade of the runtime, older containers still have the old
    /// rule's weight.
    pub(super) fn detect_weight_rule(&mut self, containers: &SeriesTable<ContainerSeries>) {
        let shown = containers.iter().filter_map(|series| series.row.shown_weight_rule());
        let balance: i64 = shown.map(|rule| if rule == WeightRule::Linear { 1 } else { -1 }).sum();
        if balance != 0 {
            self.is_weight_rule_shown = true;
            self.probe.kernel.weight_rule =
                if balance > 0 { WeightRule::Linear } else { WeightRule::Quadratic };
        }
    }
}

impl Sampler {
    /// Determines the state of every feature.
    pub(super) fn update_features(&mut self) {
        self.node.features = features::states(&self.tree, &self.node.probe.kernel);
        self.node
            .features
            .push(features::state("sample_interval", self.schedule.governor.reason()));
        self.node.features.extend(self.reader.bulk.feature());
        self.node.features.extend(
            self.names.missing.map(|reason| features::state("pod_names", reason.to_owned())),
        );
        let unkept =
            self.tree.cgroups.iter().filter(|(_, cgroup)| cgroup.files.any_unkept()).count();
        let reason = match unkept {
            0 => String::new(),
            _ => "the agent opens some files for each read: raise --max-open-files, or the limit of open files \
                 (LimitNOFILE)"
                .to_owned(),
        };
        self.node.features.push(features::state("kept_descriptors", reason));
        let scan = self.reader.tasks.cost();
        if scan.time > Duration::ZERO {
            let unseen = "no process of any container is visible: the agent needs the host's PID namespace (hostPID: \
                 true)";
            let reason = if scan.any_process { "" } else { unseen };
            self.node.features.push(features::state("run_queue_delay", reason.to_owned()));
        }
    }
}
