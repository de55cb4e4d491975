//! A container with variables: its limits, as the runtime or the kubelet reports them.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::Place;
use analysis::injection::{Known, Limits, Record, Request};
use api::Injected;
use kernel_text::CpuSet;
use kubepods::model::{self, ContainerKind, Pod};
use nri::api::LinuxResources;

use super::rules::InjectionRules;
use crate::report::request_of_shares;

/// Containers with variables, by the runtime's id. A copy is cheap.
pub(super) type InjectedContainers = BTreeMap<String, Arc<InjectedContainer>>;

/// A container with variables.
#[derive(Debug, Clone)]
pub(super) struct InjectedContainer {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) pod_uid: String,
    /// Id of the pod's sandbox.
    pub(super) sandbox: String,
    /// Variables that were injected, or would be.
    pub(super) record: Record,
    /// Whether they were injected.
    pub(super) is_injected: bool,
    /// Known properties of the workload.
    pub(super) known: Known,
    /// Limits in force.
    pub(super) now: Resources,
    /// Share of the memory limit for the heap.
    pub(super) memory_share: f64,
}

impl InjectedContainer {
    pub(super) fn statuses(&self) -> Vec<Injected> {
        match self.is_injected {
            true => self.record.statuses(&self.now.limits(), self.memory_share),
            false => self.record.observed(),
        }
    }

    /// Labels of the metric: namespace, pod, container, variable, value, status.
    pub(super) fn rows(&self) -> impl Iterator<Item = [String; 6]> {
        self.statuses().into_iter().map(|Injected { name, value, status, .. }| {
            let names = [&self.namespace, &self.pod, &self.container].map(Clone::clone);
            let [namespace, pod, container] = names;
            [namespace, pod, container, name, value, status.as_str().to_owned()]
        })
    }

    /// Applies changed limits. Variables that are not in the container follow them.
    pub(super) fn resize(&mut self, change: impl FnOnce(&mut Resources)) {
        change(&mut self.now);
        if !self.is_injected {
            let limits = self.now.limits();
            let variables = self.record.values.iter().map(|(variable, _)| *variable).collect();
            let request = Request { variables, containers: None };
            let values = request.missing(|_| false, &limits, &self.known, self.memory_share);
            self.record = Record { values, limits };
        }
    }
}

/// A container of a pod with a request, before the variables are determined.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Variables that the container does not have.
    pub(super) request: Request,
    /// The container, without variables.
    pub(super) entry: InjectedContainer,
}

impl Candidate {
    /// The container with its variables, by what is listed of it; `None` if it gets none.
    pub(super) fn resolve(self, listed: Option<Listed>) -> Option<InjectedContainer> {
        let Self { request, mut entry } = self;
        if !request.selects(&entry.container, listed.map(|listed| listed.place)) {
            return None;
        }
        let known = listed.map(|listed| listed.known).unwrap_or_default();
        entry.now.pod = listed.map(|listed| listed.pod_limit).unwrap_or_default();
        let limits = entry.now.limits();
        let values = request.missing(|_| false, &limits, &known, entry.memory_share);
        let record = Record { values, limits };
        (!record.values.is_empty()).then_some(InjectedContainer { record, known, ..entry })
    }
}

/// A container as the kubelet's list has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) place: Place,
    pub(super) pod_limit: Limit,
    /// Known properties of its workload.
    pub(super) known: Known,
}

impl Listed {
    pub(super) fn of(pod: &Pod, container: &model::Container, known: Known) -> Self {
        let place = match container.kind {
            ContainerKind::App => Place::Containers,
            ContainerKind::Init | ContainerKind::Sidecar => Place::InitContainers,
            ContainerKind::Ephemeral => Place::Ephemeral,
        };
        Self { place, pod_limit: Limit::of_pod(pod), known }
    }
}

/// CPU quotas and memory limits of a container and its pod.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Resources {
    pub(super) own: Limit,
    pub(super) pod: Limit,
    /// Number of CPUs that the container may use at its start.
    pub(super) usable_cpus: Option<u64>,
    /// Threads per requested core of a container without a CPU limit.
    pub(super) request_factor: Option<f64>,
}

/// `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limit {
    cpu_millis: Option<u64>,
    memory_bytes: Option<u64>,
    /// CPU request of a container.
    request_millis: Option<u64>,
}

impl Resources {
    pub(super) fn limits(&self) -> Limits {
        let memory = [self.own, self.pod].into_iter().filter_map(|limit| limit.memory_bytes);
        let scaled = |millis: u64, factor: f64| (millis as f64 * factor).round() as u64;
        let request = self.own.request_millis.zip(self.request_factor);
        Limits {
            scaled_request_millis: request.map(|(millis, factor)| scaled(millis, factor)),
            cpu_millis: self.own.cpu_millis,
            pod_cpu_millis: self.pod.cpu_millis,
            memory_bytes: memory.min(),
            usable_cpus: self.usable_cpus,
        }
    }

    /// Applies an update of the pod. The runtime gets the sum of those limits that exist; only
    /// where the pod itself has a limit, the sum is that limit.
    pub(super) fn update_pod(&mut self, resources: &LinuxResources) {
        let sum = Limit::of(Some(resources));
        // A resize changes a limit, but cannot remove it.
        let changed =
            |limit: Option<u64>, sum: Option<u64>| limit.map(|limit| sum.unwrap_or(limit));
        self.pod = Limit {
            cpu_millis: changed(self.pod.cpu_millis, sum.cpu_millis),
            memory_bytes: changed(self.pod.memory_bytes, sum.memory_bytes),
            request_millis: None,
        };
    }
}

impl Limit {
    /// Limits of a container or pod, as the runtime reports them.
    pub(super) fn of(resources: Option<&LinuxResources>) -> Self {
        let mut limit = Self::default();
        if let Some(resources) = resources {
            limit.update(resources);
        }
        limit
    }

    /// Applies an update; what it does not name stays as it is. Quotas up to 0 mean no limit.
    pub(super) fn update(&mut self, resources: &LinuxResources) {
        let positive = |value: i64| u64::try_from(value).ok().filter(|&value| value > 0);
        if let Some(cpu) = &resources.cpu
            && let Some(quota) = &cpu.quota
        {
            let period = cpu.period.as_ref().map_or(0, |period| period.value);
            let period = if period == 0 { DEFAULT_PERIOD_US } else { period };
            let millis = |quota: u64| quota.saturating_mul(1000) / period;
            self.cpu_millis = positive(quota.value).map(millis);
        }
        let shares = resources.cpu.as_ref().and_then(|cpu| cpu.shares.as_ref());
        if let Some(shares) = shares {
            self.request_millis = request_of_shares(shares.value);
        }
        if let Some(limit) = resources.memory.as_ref().and_then(|memory| memory.limit.as_ref()) {
            self.memory_bytes = positive(limit.value);
        }
    }

    /// The pod's own limit (`spec.resources`), which may be lower than what its containers add up
    /// to.
    ///
    /// Without it, the kubelet gives the pod's cgroup the sum of the containers' limits, if each
    /// has one (`ResourceConfigForPod`): no container's limit is higher than that sum. The runtime
    /// gets another one (`calculateSandboxResources`): of the limits that exist, as of the pod's
    /// creation. So the resources of a sandbox say nothing about the pod's cgroup.
    fn of_pod(pod: &Pod) -> Self {
        let (actual, desired) = (pod.actual_resources.unwrap_or_default(), &pod.resources);
        Self {
            cpu_millis: actual.cpu_limit_millis.or(desired.cpu_limit_millis),
            memory_bytes: actual.memory_limit_bytes.or(desired.memory_limit_bytes),
            request_millis: None,
        }
    }

    /// The pod's limit at the start of a container with these limits, of which the record has only
    /// the lower memory limit.
    pub(super) fn of_pod_at_start(limits: &Limits) -> Self {
        Self {
            cpu_millis: limits.pod_cpu_millis,
            memory_bytes: limits.memory_bytes,
            request_millis: None,
        }
    }

    /// Limits under which the pod reports the container to run.
    fn of_container(container: &model::Container) -> Self {
        Self::of_spec(container.actual_resources.as_ref().unwrap_or(&container.resources))
    }

    fn of_spec(resources: &model::Resources) -> Self {
        Self {
            cpu_millis: resources.cpu_limit_millis,
            memory_bytes: resources.memory_limit_bytes,
            request_millis: resources.cpu_request_millis.filter(|&millis| millis > 0),
        }
    }
}

/// Period of a quota without one, µs.
const DEFAULT_PERIOD_US: u64 = 100_000;

/// The number of CPUs of a container's cpuset, or without one of all online ones.
pub(super) fn usable_cpus(resources: Option<&LinuxResources>, online: Option<u64>) -> Option<u64> {
    let cpus = resources.and_then(|resources| resources.cpu.as_ref()).map(|cpu| &*cpu.cpus);
    let cpus = cpus.and_then(|cpus| CpuSet::parse(cpus).ok()).filter(|cpus| !cpus.is_empty());
    let count = cpus.map(|cpus| cpus.len() as u64);
    count.into_iter().chain(online).min()
}

/// The variables that a container of a listed pod would get on this many online CPUs, unless it
/// sets them itself.
pub(super) fn would_inject(
    pod: &Pod,
    container: &model::Container,
    request: &Request,
    online: Option<u64>,
    rules: &InjectionRules,
) -> Option<String> {
    let listed = Listed::of(pod, container, Known::default());
    if !request.selects(&container.name, Some(listed.place)) {
        return None;
    }
    let now = Resources {
        own: Limit::of_container(container),
        pod: listed.pod_limit,
        usable_cpus: online,
        request_factor: rules.request_factor,
    };
    let values = request.missing(|_| false, &now.limits(), &listed.known, rules.memory_share);
    let values: Vec<String> =
        values.iter().map(|(variable, value)| format!("{}={value}", variable.name())).collect();
    (!values.is_empty())
        .then(|| format!("{}/{}/{} {}", pod.namespace, pod.name, container.name, values.join(" ")))
}
