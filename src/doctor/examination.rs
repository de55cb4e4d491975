//! What the checks look at, gathered once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use cgroupfs::{DescriptorLimit, Hierarchy, raise_descriptor_limit, subdirectories};
use pods::path::{self, CgroupPath, ContainerCgroup};
use pods::{ExclusiveCpus, Lookup, PodIndex, PodService, PodSource, Pods, SourceName, SourceStatus};
use sampler::Sampler;
use sampler::snapshot::NodeSnapshot;

use crate::agent;
use crate::config::{Config, chain};
use crate::exit::Failure;

/// A request's own limits, and a margin for the answer to be taken in.
const MARGIN: Duration = Duration::from_secs(1);
/// How long cgroups that no pod accounts for may take to be in the kubelet's list.
const LATECOMERS: Duration = Duration::from_secs(2);
/// How deep kubepods may be below the mount, as the sampler looks.
const LOCATE_DEPTH: usize = 5;

/// The node as the agent sees it.
pub(super) struct Examination {
    pub(super) config: Config,
    pub(super) descriptors: DescriptorLimit,
    /// The pod sources that were asked.
    pub(super) sources: Vec<SourceStatus>,
    pub(super) index: Arc<PodIndex>,
    /// What the kubelet and its drivers have given to containers, by pod-resources.
    pub(super) resources: Arc<ExclusiveCpus>,
    /// What only a hierarchy can tell.
    pub(super) cgroups: Result<Cgroups, cgroupfs::Error>,
}

/// What was found below the hierarchy.
pub(super) struct Cgroups {
    pub(super) hierarchy: Hierarchy,
    /// The kubelet's top cgroups, below the mount.
    pub(super) tops: Vec<String>,
    /// Containers and sandboxes.
    pub(super) containers: Vec<ContainerCgroup>,
    pub(super) snapshot: Arc<NodeSnapshot>,
}

impl Examination {
    /// Asks the pod sources once and takes a few samples.
    ///
    /// # Errors
    /// Pod options that cannot work.
    pub(super) async fn make(config: Config) -> Result<Self, Failure> {
        let pods = PodService::start(&config.pods, &tokio::runtime::Handle::current())
            .map_err(|error| Failure::config(chain(&error)))?;
        let descriptors = raise_descriptor_limit();
        let answered = pods.until(|pods| have_answered(pods, config.pods.source));
        // One that has said nothing by then is silent, which is a finding.
        let _ = tokio::time::timeout(config.pods.request_timeout + MARGIN, answered).await;
        let cgroups = match Hierarchy::detect(&config.cgroup_root) {
            Ok(hierarchy) => Ok(Cgroups::look(&config, hierarchy, &pods).await?),
            Err(error) => Err(error),
        };
        let (sources, index, resources) = (pods.status(), pods.index(), pods.exclusive_cpus());
        Ok(Self { descriptors, sources, index, resources, cgroups, config })
    }

    /// The snapshot, where there is a hierarchy.
    pub(super) fn snapshot(&self) -> Option<&NodeSnapshot> {
        self.cgroups.as_ref().ok().map(|cgroups| &*cgroups.snapshot)
    }
}

impl Cgroups {
    async fn look(config: &Config, hierarchy: Hierarchy, pods: &Pods) -> anyhow::Result<Self> {
        let mut sampler = Sampler::new(agent::sampler_config(config, hierarchy.clone()), Box::new(pods.clone()))
            .context("cannot make a sampler")?;
        sampler.tick(Instant::now());
        let tops = match &config.kubepods {
            Some(named) => vec![named.clone()],
            None => locate_tops(&hierarchy),
        };
        let containers: Vec<_> = tops.iter().flat_map(|top| containers_below(&hierarchy.cpu.join(top), "")).collect();
        let all_known = |pods: &Pods| strangers(&containers, &pods.index()).next().is_none();
        if pods.is_known() && config.pods.source != PodSource::None {
            let _ = tokio::time::timeout(LATECOMERS, pods.until(all_known)).await;
        }
        // For what has got its name meanwhile: only then is it read in full.
        sampler.tick(Instant::now());
        Ok(Self { hierarchy, tops, containers, snapshot: sampler.published().latest() })
    }
}

/// Container cgroups whose pod is in no list.
pub(super) fn strangers<'a>(
    containers: &'a [ContainerCgroup],
    index: &'a PodIndex,
) -> impl Iterator<Item = &'a ContainerCgroup> {
    containers.iter().filter(|found| matches!(index.container(&found.pod.uid, &found.id), Lookup::UnknownPod))
}

/// Every source that is asked at once has answered or failed. The API server as a fallback is not asked at once.
fn have_answered(pods: &Pods, source: PodSource) -> bool {
    let is_asked = |status: &SourceStatus| source != PodSource::Auto || status.source != SourceName::ApiServer;
    pods.status().iter().filter(|status| is_asked(status)).all(|status| status.up || status.error.is_some())
}

fn locate_tops(hierarchy: &Hierarchy) -> Vec<String> {
    let found = cgroupfs::locate(&hierarchy.cpu, LOCATE_DEPTH, |name| path::kubepods_root(name).is_some());
    let relative = found.iter().flatten().filter_map(|path| path.strip_prefix(&hierarchy.cpu).ok()?.to_str());
    path::choose_tops(relative.map(str::to_owned)).taken
}

fn containers_below(top: &Path, relative: &str) -> Vec<ContainerCgroup> {
    let children = subdirectories(&top.join(relative)).unwrap_or_default();
    let paths = children.into_iter().map(|child| match relative {
        "" => child.name,
        _ => format!("{relative}/{}", child.name),
    });
    paths
        .flat_map(|path| match path::parse(&path) {
            Some(CgroupPath::Container(container)) => vec![container],
            Some(CgroupPath::SystemPartition { .. } | CgroupPath::Qos { .. } | CgroupPath::Pod(_)) => {
                containers_below(top, &path)
            }
            _ => Vec::new(),
        })
        .collect()
}
