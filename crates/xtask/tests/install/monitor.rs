//! The profile monitor: it becomes Ready, and every container has its name.

use std::collections::BTreeSet;
use std::time::Duration;

use super::agent;
use xtask::cluster::ensure;
use xtask::cluster::pods::{items, running_containers};
use xtask::cluster::{Cluster, ClusterError, wait_until};

/// Namespace, pod and container.
type Name = (String, String, String);

/// Maximum time until the names of all containers are known.
const NAMES_TIMEOUT: Duration = Duration::from_secs(180);

/// Installs the profile without root.
pub(super) fn becomes_ready(cluster: &Cluster) -> Result<String, ClusterError> {
    let took = agent::install(cluster, &["profile=monitor"])?;
    // The doctor fails if something must be fixed.
    agent::exec(cluster, &["doctor"])?;
    Ok(format!("{took}; the doctor finds nothing to fix"))
}

/// Compares the names in the agent's series with the pods of the API server.
pub(super) fn every_container_has_its_name(cluster: &Cluster) -> Result<String, ClusterError> {
    let (mut expected, mut found) = (BTreeSet::new(), BTreeSet::new());
    let took = wait_until("complete set of names", NAMES_TIMEOUT, || {
        expected = expected_names(cluster)?;
        found = exported_names(cluster)?;
        Ok(expected == found)
    });
    let took = took.map_err(|error| {
        let missing: Vec<_> = expected.difference(&found).collect();
        let extra: Vec<_> = found.difference(&expected).collect();
        ClusterError::Unexpected(format!("{error}: missing {missing:?}, unexpected {extra:?}"))
    })?;
    let series = agent::metrics(cluster)?;
    let unmapped: f64 = series
        .iter()
        .filter(|one| one.name == "cpuwarden_unmapped_cgroups")
        .map(|one| one.value)
        .sum();
    ensure(unmapped == 0.0, || format!("{unmapped} cgroups without a name"))?;
    let throttled = series.iter().find(|one| {
        one.name == "cpuwarden_container_throttled_seconds_total" && one.label("pod") == "throttled"
    });
    ensure(throttled.is_some_and(|one| one.value > 0.0), || {
        format!("the throttled pod: {throttled:?}")
    })?;
    let (count, all) = (found.intersection(&expected).count(), expected.len());
    Ok(format!(
        "{count}/{all} containers named after {:.0} s, {} series",
        took.as_secs_f64(),
        series.len()
    ))
}

fn expected_names(cluster: &Cluster) -> Result<BTreeSet<Name>, ClusterError> {
    let pods = cluster.get(&["pods", "--all-namespaces"])?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let names = items(&pods).flat_map(|pod| {
        let metadata = &pod["metadata"];
        running_containers(pod)
            .map(|name| (text(&metadata["namespace"]), text(&metadata["name"]), name.to_owned()))
    });
    Ok(names.collect())
}

fn exported_names(cluster: &Cluster) -> Result<BTreeSet<Name>, ClusterError> {
    let series = agent::metrics(cluster)?;
    let usage =
        series.iter().filter(|one| one.name == "cpuwarden_container_cpu_usage_seconds_total");
    let label = |series: &agent::Series, name| series.label(name).to_owned();
    Ok(usage
        .map(|one| (label(one, "namespace"), label(one, "pod"), label(one, "container")))
        .collect())
}
