//! CPUs of containers at their creation, as containerd got them from the agent.

use super::pin::{self, cpu_list};
use super::{agent, nri};
use xtask::cluster::{Cluster, ClusterError};
use xtask::cluster::{ensure, pods};

const EXCLUSIVE: &str = "placed-lse";
const SHARED: [&str; 4] = ["placed-0", "placed-1", "placed-2", "placed-3"];

/// The container of an LSE pod is created with CPUs of its own, the containers after it without
/// them: in the runtime's specification, which runc applies before the first instruction.
pub(super) fn containers_are_created_on_their_cpus(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let values = ["profile=pin", "config.pinning=enforce", "nri.enabled=true"];
    let ready = agent::install(cluster, &values)?;
    nri::await_connection(cluster)?;
    pin::await_enforcing(cluster)?;
    cluster.apply(&pin::exclusive_pod(EXCLUSIVE, "LSE"))?;
    await_pod(cluster, EXCLUSIVE)?;
    for name in SHARED {
        let container = pods::container("main", "sleep 1000000", "{requests: {cpu: 10m}}");
        cluster.apply(&pods::pod(name, "", &container))?;
    }
    let own = specified_cpus(cluster, EXCLUSIVE)?;
    ensure(cpu_list(&own).len() == pin::CPUS_EACH, || format!("{EXCLUSIVE}: CPUs {own:?}"))?;
    let mut others = Vec::new();
    for name in SHARED {
        await_pod(cluster, name)?;
        let cpus = specified_cpus(cluster, name)?;
        let is_beside = !cpus.is_empty() && cpu_list(&cpus).is_disjoint(&cpu_list(&own));
        ensure(is_beside, || format!("{name}: CPUs {cpus:?} beside {own:?}"))?;
        others.push(cpus);
    }
    for name in SHARED.iter().chain([&EXCLUSIVE]) {
        cluster.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    Ok(format!("{ready}; created with CPUs {own}, the others with {}", others.join(", ")))
}

fn await_pod(cluster: &Cluster, name: &str) -> Result<(), ClusterError> {
    let pod = format!("pod/{name}");
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=300s", &pod]).map(drop)
}

/// CPUs in the OCI specification with which the pod's container was created; empty without.
fn specified_cpus(cluster: &Cluster, pod: &str) -> Result<String, ClusterError> {
    let id = pods::container_id(cluster, pod)?;
    let path = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
    let text = cluster.in_node(&format!("cat {path}"))?;
    let specification: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| ClusterError::Unexpected(format!("{path}: {error}")))?;
    let cpus = &specification["linux"]["resources"]["cpu"]["cpus"];
    Ok(cpus.as_str().unwrap_or_default().to_owned())
}
