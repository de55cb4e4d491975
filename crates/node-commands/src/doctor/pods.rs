//! Checks of the kubelet: sources that answer, the agent's authorization, and whether every
//! container is listed.

use std::path::Path;

use api::doctor::Finding;
use kubepods::model::Pod;
use pod_sources::{PodConfig, PodSource, SourceName, SourceStatus};
use tls_client::SERVICE_ACCOUNT_TOKEN;

use super::examination::{Cgroups, Examination, strangers};

/// Maximum number of containers and cgroups that a finding names.
const SHOWN: usize = 3;
/// Number of digits of a container ID that suffice to find it (`crictl ps --id`).
const ID_DIGITS: usize = 13;

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let config = &examination.options.pods;
    if config.source == PodSource::None {
        let found = "--pod-source=none: series carry the pod UID and the container ID";
        return vec![Finding::good("pods", found)];
    }
    let named = examination
        .sources
        .iter()
        .any(|status| status.up && status.source != SourceName::PodResources);
    let asked = examination.sources.iter().filter(|status| status.up || status.error.is_some());
    let mut all: Vec<Finding> = asked.map(|status| source(status, config, named)).collect();
    match (named, &examination.cgroups) {
        // The sources' own findings give the reason.
        (false, _) if !all.is_empty() => {}
        (false, _) => {
            all.push(Finding::broken(
                "pods",
                "no source has answered: series carry pod UIDs and container IDs",
            ));
        }
        (true, Err(_)) => all
            .push(Finding::good("pods", format!("{} in the list", examination.index.pods().len()))),
        (true, Ok(cgroups)) => {
            all.push(names(examination, cgroups));
            all.extend(without_cgroup(cgroups));
            all.extend(outside(cgroups));
            all.extend(sandboxed(examination, cgroups));
        }
    }
    all
}

/// Running containers that the agent cannot measure.
fn without_cgroup(cgroups: &Cgroups) -> Option<Finding> {
    let missing = cgroups.snapshot.missing.iter().flat_map(|missing| missing.iter());
    let missing: Vec<String> = missing
        .filter(|row| row.sandboxed_by.is_none())
        .map(|row| format!("{}/{}/{}", row.namespace, row.pod, row.container))
        .collect();
    let found = match missing.len() {
        0 => return None,
        1 => "1 running container has had no cgroup for 30 s and is not measured".to_owned(),
        count => {
            format!("{count} running containers have had no cgroup for 30 s and are not measured")
        }
    };
    let found = format!("{found}: {}", shown(&missing));
    Some(Finding::broken("containers", found).remedy(
        "look for their cgroups: cat /proc/PID/cgroup, with the PID of crictl inspect. Compare the cgroup driver of \
         the kubelet (cgroupDriver) and of the container runtime (SystemdCgroup), set --kubepods if the kubelet's root \
         has another name, and mount the host's /sys/fs/cgroup. A sandboxed runtime has no cgroup per container: what \
         its processes use in the cgroup of the pod counts for the pod, as container POD",
    ))
}

/// Containers that are measured, but whose pods' limits do not hold.
fn outside(cgroups: &Cgroups) -> Option<Finding> {
    let found = match cgroups.strays.len() {
        0 => return None,
        1 => "1 container has its cgroup".to_owned(),
        count => format!("{count} containers have their cgroups"),
    };
    let found = format!(
        "{found} outside of the kubelet's tree, so the limits and weights of its pods and QoS classes have no effect: {}",
        shown(&cgroups.strays)
    );
    Some(Finding::lacking("containers-outside", found).remedy(
        "use the same cgroup driver for the kubelet (cgroupDriver) and the container runtime (containerd: \
         SystemdCgroup), then restart both and the pods. If the path contains another kubepods root, set --kubepods to \
         it",
    ))
}

/// Pods whose runtime is known to run them in a sandbox: the agent sees each as a whole, or not at
/// all if its processes are not below the cgroup of the pod.
fn sandboxed(examination: &Examination, cgroups: &Cgroups) -> Option<Finding> {
    let pods = examination.index.pods().iter().filter(|pod| pod.is_sandboxed());
    let is_seen = |pod: &Pod| pod.cgroup_names().any(|name| cgroups.populated.contains(name));
    let unseen = pods.clone().filter(|pod| !is_seen(pod)).count();
    let mut classes: Vec<&str> = pods.filter_map(|pod| pod.runtime_class.as_deref()).collect();
    let all_unseen = unseen == classes.len();
    let pods = match classes.len() {
        0 => return None,
        1 => "1 pod runs in a sandbox".to_owned(),
        count => format!("{count} pods run in sandboxes"),
    };
    classes.sort_unstable();
    classes.dedup();
    let classes = classes.join(", ");
    let seen = "CPU that the sandbox uses counts for its pod, as container POD";
    let consequence = match unseen {
        0 => seen.to_owned(),
        _ if all_unseen => {
            "no process is in the cgroup of the pod, so its CPU is not measured".to_owned()
        }
        unseen => format!("{seen}, except in {unseen} without a process in the cgroup of the pod"),
    };
    Some(Finding::good("sandboxes", format!("{pods} (runtime class {classes}): {consequence}")))
}

/// The first of some names.
fn shown(names: &[String]) -> String {
    let more = if names.len() > SHOWN { ", …" } else { "" };
    names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

fn source(status: &SourceStatus, config: &PodConfig, named: bool) -> Finding {
    let check = status.source.as_str();
    let Some(error) = &status.error else {
        let count = match status.source {
            SourceName::PodResources => format!("{} containers with exclusive CPUs", status.pods),
            _ => format!("{} pods", status.pods),
        };
        return Finding::good(
            check,
            format!("{} answers: {count}{}", place(status.source, config), right(status, config)),
        );
    };
    // A source is optional if the names are known without it.
    let is_optional = named || status.source == SourceName::PodResources;
    let finding =
        if is_optional { Finding::lacking(check, error) } else { Finding::broken(check, error) };
    match remedy(status, error) {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}

/// Remedy for the cause, unless the error ends with one.
fn remedy(status: &SourceStatus, error: &str) -> Option<&'static str> {
    if status.source == SourceName::PodResources {
        return Some("mount the kubelet's socket, and run as root");
    }
    let remedy = status.cause?.remedy();
    let has_its_own = ["--", ": 401 ", remedy].iter().any(|mark| error.contains(mark));
    (!has_its_own).then_some(remedy)
}

fn place(source: SourceName, config: &PodConfig) -> String {
    match source {
        SourceName::Kubelet => config.kubelet.url.clone(),
        SourceName::ReadOnly => config.readonly_url.clone().unwrap_or_default(),
        SourceName::PodsApi => config.pods_api_socket.display().to_string(),
        SourceName::PodResources => config
            .pod_resources_socket
            .as_deref()
            .map(|socket| socket.display().to_string())
            .unwrap_or_default(),
        SourceName::ApiServer => {
            config.apiserver.url.clone().unwrap_or_else(|| "the API server".to_owned())
        }
        // The agent connects to it, the doctor does not.
        SourceName::Nri => String::new(),
    }
}

/// The authorization that the kubelet's HTTPS port accepts from the agent.
fn right(status: &SourceStatus, config: &PodConfig) -> String {
    if status.source != SourceName::Kubelet {
        return String::new();
    }
    let kubelet = &config.kubelet;
    let shown = match (&kubelet.client_certificate, &kubelet.token_file) {
        (Some(certificate), _) => {
            format!("client certificate {}", certificate.certificate_file.display())
        }
        (None, Some(token)) => format!("token {}", token.display()),
        (None, None) if Path::new(SERVICE_ACCOUNT_TOKEN).exists() => {
            "the service account's token".to_owned()
        }
        (None, None) => "no credentials: the kubelet allows anonymous access".to_owned(),
    };
    let unverified =
        if kubelet.insecure_skip_verify { "; its certificate is not verified" } else { "" };
    format!("; authorized by {shown}{unverified}")
}

fn names(examination: &Examination, cgroups: &Cgroups) -> Finding {
    let unknown: Vec<String> = strangers(&cgroups.containers, &examination.index)
        .map(|container| format!("pod {} {}", container.pod.uid, &container.id[..ID_DIGITS]))
        .collect();
    let (all, pods) = (cgroups.containers.len(), examination.index.pods().len());
    if unknown.is_empty() {
        return Finding::good(
            "pods",
            format!("the list of {pods} pods accounts for all {all} container cgroups"),
        );
    }
    let found = format!(
        "{} of {all} container cgroups belong to no listed pod: {}",
        unknown.len(),
        shown(&unknown)
    );
    Finding::lacking("pods", found).remedy(
        "if this persists, they are leftovers of the container runtime (crictl ps -a) or belong to another kubelet",
    )
}
