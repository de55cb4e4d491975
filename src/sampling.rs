//! Configuration of the sampler and of the tree that it shares with other threads.

use std::sync::Arc;

use cgroup_tree::{KubepodsTree, TreeOptions};
use cgroupfs::{Hierarchy, raise_descriptor_limit};
use metrics::catalogue::CadvisorGroup;
use sampler::{DescriptorBudget, ExtraFiles, SamplerConfig};

use crate::config::Config;
use state_dir::ActingMode;

/// Number of descriptors for 250 pods with two containers: up to 14 files per container, three per
/// pod, and some spare.
const DESCRIPTORS_OF_A_FULL_NODE: u64 = 8192;

/// Configuration of the sampler.
pub(crate) fn sampler_config(config: &Config, hierarchy: Hierarchy) -> SamplerConfig {
    let limit = raise_descriptor_limit();
    if limit.soft < DESCRIPTORS_OF_A_FULL_NODE {
        tracing::warn!(
            limit = limit.soft,
            "low limit of open files: on a full node the agent must open files for each read, which costs many times \
             the CPU; raise the limit to {DESCRIPTORS_OF_A_FULL_NODE} (LimitNOFILE)"
        );
    }
    let pinning = crate::pinning::descriptors(config, limit.soft);
    SamplerConfig {
        hierarchy,
        kubepods: config.options.kubepods.iter().cloned().collect(),
        proc_root: config.options.proc_root.clone(),
        sys_root: config.options.sys_root.clone(),
        interval: config.options.sample_interval.0,
        cpu_budget_cores: config.options.cpu_budget,
        reconcile_interval: config.reconcile_interval,
        descriptors: DescriptorBudget::from_limit(limit.soft.saturating_sub(pinning))
            .at_most(config.options.max_open_files - pinning),
        pod_labels: config.pod_labels.clone(),
        extra: extra_files(config),
    }
}

/// Files that only the page of cAdvisor's names needs, or needs more often.
fn extra_files(config: &Config) -> ExtraFiles {
    let has = |group| config.options.cadvisor_metrics && config.cadvisor.contains(&group);
    ExtraFiles {
        pressure: has(CadvisorGroup::Pressure),
        tasks: has(CadvisorGroup::Threads),
        memory: has(CadvisorGroup::Memory),
    }
}

/// The tree of the cpu controller's hierarchy, which the agent's threads share.
pub(crate) fn tree(config: &Config, hierarchy: &Hierarchy) -> Arc<KubepodsTree> {
    let options = TreeOptions {
        named_roots: config.options.kubepods.iter().cloned().collect(),
        // Pinning does not write beside another kubelet with running pods. If cpuset is another
        // hierarchy, it has a tree of its own.
        other_roots: config.options.pinning != ActingMode::Off
            && hierarchy.cpuset.as_ref() == Some(&hierarchy.cpu),
        reports: true,
    };
    KubepodsTree::new(hierarchy.cpu.clone(), hierarchy.version, options)
}
