//! The kubelet's pod-resources socket, v1: CPUs allocated exclusively.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubepods::ExclusiveCpus;
use tonic::transport::Channel;

use super::SourceError;
use crate::grpc::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use crate::grpc::podresources_v1::{AllocatableResourcesRequest, ListPodResourcesRequest, PodResources};
use crate::grpc::{MESSAGE_LIMIT, connect, failed};

/// A client of the socket. It connects for every fetch: fetches are half a minute apart, and a restarted kubelet
/// creates a new socket.
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
        let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
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
        let mut found = ExclusiveCpus { allocatable: cpus(&allocatable.cpu_ids), ..ExclusiveCpus::default() };
        for pod in list.pod_resources {
            add(&mut found, pod);
        }
        Ok(found)
    }
}

fn add(found: &mut ExclusiveCpus, pod: PodResources) {
    let (namespace, name): (Box<str>, Box<str>) = (pod.namespace.into(), pod.name.into());
    if !pod.cpu_ids.is_empty() {
        found.pods.insert((namespace.clone(), name.clone()), cpus(&pod.cpu_ids));
    }
    for container in &pod.containers {
        let claims = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
        for driver in claims.map(|claim| &*claim.driver_name).collect::<BTreeSet<&str>>() {
            *found.drivers.entry(driver.into()).or_default() += 1;
        }
    }
    for container in pod.containers.into_iter().filter(|container| !container.cpu_ids.is_empty()) {
        let key = (namespace.clone(), name.clone(), container.name.into());
        found.containers.insert(key, cpus(&container.cpu_ids));
    }
}

/// Sorts the CPU ids, which the kubelet sends unsorted.
fn cpus(ids: &[i64]) -> Vec<u32> {
    let mut cpus: Vec<u32> = ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
    cpus.sort_unstable();
    cpus
}
