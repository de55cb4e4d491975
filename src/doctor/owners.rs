//! Who else writes cpusets on this node. Two that do overwrite each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::examination::Examination;
use super::finding::Finding;

/// Beginnings of process and image names of agents that place containers on CPUs.
const AGENTS: [&str; 5] = ["koordlet", "nri-resource-policy", "cri-resmgr", "katalyst-agent", "crane-agent"];
/// The kernel cuts process names here (`TASK_COMM_LEN` less the NUL).
const COMM_LENGTH: usize = 15;

/// `cpu_manager_state` in the kubelet's root directory (`pkg/kubelet/cm/cpumanager/state`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuManagerState {
    policy_name: String,
    /// By pod UID and container name: a CPU list.
    #[serde(default)]
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let policy = kubelet_policy(examination);
    let mut owners: Vec<String> = policy.as_ref().ok().cloned().flatten().into_iter().collect();
    owners.extend(agents(examination).into_iter().map(|name| format!("{name} runs here")));
    if !owners.is_empty() {
        let finding =
            Finding::lacking("cpuset-owners", format!("{}: no place for pinning beside it", owners.join("; ")));
        return vec![finding.remedy("let one alone place containers: leave pinning off, or take the other one away")];
    }
    let found = match policy {
        Ok(_) => "none but the kubelet with its policy none".to_owned(),
        Err(path) => format!("none seen; {} is not there to tell the kubelet's policy", path.display()),
    };
    vec![Finding::good("cpuset-owners", found)]
}

/// The kubelet as an owner, where its CPU manager gives CPUs away; the file's path where it cannot be read.
fn kubelet_policy(examination: &Examination) -> Result<Option<String>, PathBuf> {
    let socket = examination.config.pods.pod_resources_socket.as_deref();
    // <root>/pod-resources/kubelet.sock
    let root = socket.and_then(|socket| socket.parent()?.parent()).map_or("/var/lib/kubelet".into(), PathBuf::from);
    let path = root.join("cpu_manager_state");
    let text = std::fs::read(&path).map_err(|_| path.clone())?;
    let state: CpuManagerState = serde_json::from_slice(&text).map_err(|_| path)?;
    let exclusive = state.entries.values().map(BTreeMap::len).sum::<usize>();
    let policy =
        format!("the kubelet's CPU manager policy {}, {exclusive} containers on exclusive CPUs", state.policy_name);
    Ok((state.policy_name != "none").then_some(policy))
}

/// The agents that run here, by their processes or by their pods' images.
fn agents(examination: &Examination) -> Vec<&'static str> {
    let processes = processes(examination);
    let images: Vec<&str> =
        examination.index.pods().iter().flat_map(|pod| &pod.containers).map(|c| &*c.image).collect();
    let runs = |name: &&str| {
        let comm = &name[..name.len().min(COMM_LENGTH)];
        processes.iter().any(|process| process.starts_with(comm))
            || images.iter().any(|image| image.rsplit('/').next().is_some_and(|last| last.starts_with(*name)))
    };
    AGENTS.into_iter().filter(runs).collect()
}

fn processes(examination: &Examination) -> Vec<String> {
    let all = procfs::process::all_processes_with_root(&examination.config.proc_root).into_iter().flatten();
    // One that has ended meanwhile has no name.
    all.filter_map(|process| Some(process.ok()?.stat().ok()?.comm)).collect()
}
