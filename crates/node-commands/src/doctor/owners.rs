//! Detects other writers of cpusets on this node, because two of them overwrite each other.

use std::path::{Path, PathBuf};

use api::doctor::Finding;
use pinning::{CpuManagerState, OwnerSearch, connected_plugins, other_agents};

use super::examination::Examination;

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let policy = kubelet_policy(examination);
    let mut owners: Vec<String> = policy.as_ref().ok().cloned().flatten().into_iter().collect();
    let options = &examination.options;
    let search = OwnerSearch {
        proc_root: &options.proc_root,
        kubelet_root: options.cpu_manager_state.parent().unwrap_or(Path::new("/")),
        namespaces: &options.owner_namespaces,
    };
    let agents = other_agents(&search, &examination.index, &examination.resources);
    owners.extend(agents.into_iter().map(|name| format!("{name} runs on this node")));
    if !owners.is_empty() {
        let finding = Finding::lacking(
            "cpuset-owners",
            format!("{}: pinning must not run at the same time", owners.join("; ")),
        );
        return vec![finding.remedy(
            "only one program may place containers: disable pinning or remove the other program",
        )];
    }
    let found = match policy {
        Ok(_) => "only the kubelet, with its CPU manager policy none".to_owned(),
        Err(path) => {
            format!(
                "no other owner found; the kubelet's policy is unknown because {} does not exist",
                path.display()
            )
        }
    };
    let plugins = connected_plugins(search.proc_root).filter(|count| *count > 0);
    let plugins = plugins.map(|count| {
        format!("; {count} NRI plugins are connected, none of them a known CPU policy")
    });
    vec![Finding::good("cpuset-owners", found + &plugins.unwrap_or_default())]
}

/// The kubelet as an owner, if its CPU manager grants exclusive CPUs; the file's path if it cannot
/// be read.
fn kubelet_policy(examination: &Examination) -> Result<Option<String>, PathBuf> {
    let path = examination.options.cpu_manager_state.clone();
    let state = CpuManagerState::read(&path).map_err(|_| path)?;
    let exclusive = state.containers();
    let policy = format!(
        "the kubelet's CPU manager policy {}, {exclusive} containers on exclusive CPUs",
        state.policy_name
    );
    Ok((state.policy_name != "none").then_some(policy))
}
