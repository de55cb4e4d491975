//! Inputs of the checks, gathered once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use cgroup_tree::{Role, TreeCgroup};
use cgroupfs::{DescriptorLimit, Hierarchy, raise_descriptor_limit};
use kubepods::path::{CgroupPath, ContainerCgroup};
use kubepods::{ExclusiveCpus, Lookup, PodIndex};
use pod_sources::{PodConfig, PodService, PodSource, Pods, SourceName, SourceStatus};
use sampler::{Sampler, SamplerConfig};
use snapshot::NodeSnapshot;

use super::options::Options;

/// Time added to a request's own timeout, for processing the answer.
const MARGIN: Duration = Duration::from_secs(1);
/// Maximum time to wait until the kubelet lists the pods of unknown cgroups.
const LATECOMERS: Duration = Duration::from_secs(2);
/// Maximum time to wait until a running container without a cgroup is reported, or has one.
const MISSING: Duration = Duration::from_secs(40);
/// Time between two samples and two lists of pods meanwhile.
const AGAIN: Duration = Duration::from_secs(2);

/// The node as the agent reads it.
pub(super) struct Examination {
    pub(super) options: Options,
    pub(super) descriptors: DescriptorLimit,
    /// Status of the pod sources that were queried.
    pub(super) sources: Vec<SourceStatus>,
    pub(super) index: Arc<PodIndex>,
    /// Resources that the kubelet and its drivers gave to containers, according to pod-resources.
    pub(super) resources: Arc<ExclusiveCpus>,
    /// Findings below the cgroup hierarchy, or the error of detecting it.
    pub(super) cgroups: Result<Cgroups, cgroupfs::Error>,
}

/// Findings below the hierarchy.
pub(super) struct Cgroups {
    pub(super) hierarchy: Hierarchy,
    /// Root cgroups of the kubelet, below the mount.
    pub(super) roots: Vec<String>,
    /// Cgroups of containers and sandboxes.
    pub(super) containers: Vec<ContainerCgroup>,
    /// Paths below the mount of the containers outside of the kubelet's root cgroups.
    pub(super) strays: Vec<String>,
    /// UIDs of the pods with a process.
    pub(super) populated: HashSet<Box<str>>,
    pub(super) snapshot: Arc<NodeSnapshot>,
}

impl Examination {
    /// Queries the pod sources once and takes a few samples.
    ///
    /// # Errors
    /// Invalid pod options.
    pub(super) async fn make(
        options: Options,
        sampler: impl FnOnce(Hierarchy) -> SamplerConfig,
    ) -> anyhow::Result<Self> {
        let config = PodConfig { poll_interval: AGAIN, ..options.pods.clone() };
        let pods = PodService::start(&config, &tokio::runtime::Handle::current())?;
        let descriptors = raise_descriptor_limit();
        let answered = pods.until(|pods| have_answered(pods, options.pods.source));
        // A source without an answer by then counts as silent, which is a finding.
        let _ = tokio::time::timeout(options.pods.request_timeout + MARGIN, answered).await;
        let cgroups = match Hierarchy::detect(&options.cgroup_root) {
            Ok(hierarchy) => {
                Ok(Cgroups::look(&options, sampler(hierarchy.clone()), hierarchy, &pods).await?)
            }
            Err(error) => Err(error),
        };
        let (sources, index, resources) = (pods.status(), pods.index(), pods.exclusive_cpus());
        Ok(Self { options, descriptors, sources, index, resources, cgroups })
    }

    /// The snapshot; `None` without a hierarchy.
    pub(super) fn snapshot(&self) -> Option<&NodeSnapshot> {
        self.cgroups.as_ref().ok().map(|cgroups| &*cgroups.snapshot)
    }
}

impl Cgroups {
    async fn look(
        options: &Options,
        config: SamplerConfig,
        hierarchy: Hierarchy,
        pods: &Pods,
    ) -> anyhow::Result<Self> {
        let mut sampler =
            Sampler::new(config, Box::new(pods.clone())).context("cannot create a sampler")?;
        sampler.tick(Instant::now());
        let cgroups = sampler.tree().by_depth();
        let roots = match &options.kubepods {
            Some(named) => vec![named.clone()],
            None => roots(&cgroups),
        };
        let mut containers: Vec<_> =
            cgroups.iter().filter_map(|cgroup| cgroup.role.container().cloned()).collect();
        let all_known = |pods: &Pods| strangers(&containers, &pods.index()).next().is_none();
        if pods.is_known() && options.pods.source != PodSource::None {
            let _ = tokio::time::timeout(LATECOMERS, pods.until(all_known)).await;
        }
        // Containers named meanwhile: the sampler reads a container in full only once it has a
        // name.
        sampler.tick(Instant::now());
        let since = Instant::now();
        while sampler.awaits_missing() && since.elapsed() < MISSING {
            tokio::time::sleep(AGAIN).await;
            sampler.tick(Instant::now());
        }
        let cgroups = sampler.tree().by_depth();
        let strays: Vec<_> =
            cgroups.iter().filter(|cgroup| matches!(cgroup.role, Role::Stray(_))).collect();
        containers.extend(strays.iter().filter_map(|cgroup| cgroup.role.container().cloned()));
        let strays = strays.iter().map(|cgroup| cgroup.path.to_string()).collect();
        let populated = populated_pods(&hierarchy, &cgroups);
        let snapshot = sampler.published().latest();
        Ok(Self { hierarchy, roots, containers, strays, populated, snapshot })
    }
}

/// Container cgroups whose pod is in no list.
pub(super) fn strangers<'a>(
    containers: &'a [ContainerCgroup],
    index: &'a PodIndex,
) -> impl Iterator<Item = &'a ContainerCgroup> {
    containers
        .iter()
        .filter(|found| matches!(index.container(&found.pod.uid, &found.id), Lookup::UnknownPod))
}

/// Whether every source that is queried immediately has answered or failed. The API server as a
/// fallback is not.
fn have_answered(pods: &Pods, source: PodSource) -> bool {
    let is_asked =
        |status: &SourceStatus| source != PodSource::Auto || status.source != SourceName::ApiServer;
    pods.status()
        .iter()
        .filter(|status| is_asked(status))
        .all(|status| status.up || status.error.is_some())
}

/// UIDs of the pods with a process, in the cgroup of the pod or of one of its containers.
fn populated_pods(hierarchy: &Hierarchy, cgroups: &[Arc<TreeCgroup>]) -> HashSet<Box<str>> {
    let with_process =
        |cgroup: &&Arc<TreeCgroup>| cgroupfs::is_populated(&hierarchy.cpu.join(&*cgroup.path));
    let uid = |cgroup: &Arc<TreeCgroup>| match &cgroup.role {
        Role::Known(CgroupPath::Pod(pod)) => Some(pod.uid.clone()),
        role => role.container().map(|container| container.pod.uid.clone()),
    };
    cgroups.iter().filter(with_process).filter_map(uid).collect()
}

fn roots(cgroups: &[Arc<TreeCgroup>]) -> Vec<String> {
    let roots = cgroups.iter().filter(|cgroup| cgroup.role == Role::Root);
    roots.map(|root| root.path.to_string()).collect()
}
