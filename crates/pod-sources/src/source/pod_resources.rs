//! The kubelet's pod-resources socket, v1: CPUs allocated exclusively.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubepods::ExclusiveCpus;
use tonic::transport::Channel;

use super::SourceError;
use crate::grpc::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use crate::grpc::podresources_v1::{
    AllocatableResourcesRequest, ListPodResourcesRequest, PodResources,
};
use crate::grpc::{MESSAGE_LIMIT, connect, failed};

/// A client of the socket. It connects for every fetch: fetches are half a minute apart, and a
/// restarted kubelet creates a new socket.
#[derive(Debug)]
pub(crate) struct PodResourcesSocket {
    socket: PathBuf,
    timeout: Duration,
}

impl PodResourcesSocket {
    pub(crate) fn new(socket: &Path, timeout: Duration) -> Self {
        Self { socket: socket.to_owned(), timeout }
    }

    /// Fetches the allocations and the allocatable CPUs.
    pub(crate) async fn fetch(&self) -> Result<ExclusiveCpus, SourceError> {
        match tokio::time::timeout(self.timeout, self.fetch_unlimited()).await {
            Ok(result) => result,
            Err(_) => {
                let socket = self.socket.clone();
                Err(SourceError::Silent { call: "pod-resources List", socket, after: self.timeout })
            }
        }
    }

    async fn fetch_unlimited(&self) -> Result<ExclusiveCpus, SourceError> {
        let channel: Channel = connect(&self.socket, self.timeout).await?;
        let mut client =
            PodResourcesListerClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
        let list = client
            .list(ListPodResourcesRequest {})
            .await
            .map_err(failed("pod-resources List", &self.socket))?
            .into_inner();
        let allocatable = client
            .get_allocatable_resources(AllocatableResourcesRequest {})
            .await
            .map_err(failed("pod-resources GetAllocatableResources", &self.socket))?
            .into_inner();
        let mut found =
            ExclusiveCpus { allocatable: cpus(&allocatable.cpu_ids), ..ExclusiveCpus::default() };
        for pod in list.pod_resources {
            add(&mut found, pod);
        }
        Ok(found)
    }
}

fn add(found: &mut ExclusiveCpus, pod: PodResources) {
    let (namespace, name): (Box<str>, Box<str>) = (pod.namespace.into(), pod.name.into());
    if !pod.cpu_ids.is_empty() {
        add_cpus(found.pods.entry((namespace.clone(), name.clone())).or_default(), &pod.cpu_ids);
    }
    for container in &pod.containers {
        let claims = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
        for driver in claims.map(|claim| &*claim.driver_name).collect::<BTreeSet<&str>>() {
            *found.drivers.entry(driver.into()).or_default() += 1;
        }
        if container.dynamic_resources.iter().any(|claim| !claim.claim_resources.is_empty()) {
            let own: Box<str> = container.name.as_str().into();
            found.claimants.insert((namespace.clone(), name.clone(), own));
        }
    }
    for container in pod.containers.into_iter().filter(|container| !container.cpu_ids.is_empty()) {
        let key = (namespace.clone(), name.clone(), container.name.into());
        add_cpus(found.containers.entry(key).or_default(), &container.cpu_ids);
    }
}

/// Adds CPU ids to a list that stays sorted. A pod and its successor of the same name may both be
/// listed.
fn add_cpus(list: &mut Vec<u32>, ids: &[i64]) {
    list.extend(cpus(ids));
    list.sort_unstable();
    list.dedup();
}

/// Sorts the CPU ids, which the kubelet sends unsorted.
fn cpus(ids: &[i64]) -> Vec<u32> {
    let mut cpus: Vec<u32> = ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
    cpus.sort_unstable();
    cpus
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::grpc::podresources_v1::ListPodResourcesResponse;

    #[test]
    fn any_bytes_decode_to_a_list_with_all_cpus_or_an_error() {
        corpus::run(
            env!("CARGO_MANIFEST_DIR"),
            "pod_resources",
            &[b"\x0a\x00", b"\x1a\x03\x01\x02\x03", b"app"],
            |bytes| {
                // An empty message takes two bytes, but a few hundred as a container.
                let limit = (64 << 10) + 1024 * bytes.len();
                let Ok(list) = corpus::within(limit, || ListPodResourcesResponse::decode(bytes))
                else {
                    return;
                };
                let mut found = ExclusiveCpus::default();
                corpus::within(limit, || {
                    list.pod_resources.iter().cloned().for_each(|pod| add(&mut found, pod));
                });
                for pod in &list.pod_resources {
                    for container in &pod.containers {
                        let own = found.of(&pod.namespace, &pod.name, &container.name);
                        assert!(own.is_sorted_by(|one, next| one < next), "{own:?}");
                        assert!(
                            cpus(&container.cpu_ids).iter().all(|cpu| own.contains(cpu)),
                            "{own:?}"
                        );
                    }
                }
                let claims = list
                    .pod_resources
                    .iter()
                    .flat_map(|pod| &pod.containers)
                    .flat_map(|it| &it.dynamic_resources);
                for claim in claims.flat_map(|claim| &claim.claim_resources) {
                    assert!(found.drivers.contains_key(&*claim.driver_name));
                }
            },
        );
    }
}
