//! A container with variables: its limits, as the runtime or the kubelet reports them.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::Place;
use analysis::injection::{Injected, Known, Limits, Record, Request};
use kubepods::model::{self, Pod};
use nri::api::LinuxResources;

/// Containers with variables, by the runtime's id. A copy is cheap.
pub(super) type InjectedContainers = BTreeMap<String, Arc<InjectedContainer>>;

/// A container with variables.
#[derive(Debug, Clone)]
pub(super) struct InjectedContainer {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
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
}

impl InjectedContainer {
    pub(super) fn statuses(&self) -> Vec<Injected> {
        match self.is_injected {
            true => self.record.statuses(&self.now.limits()),
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
            self.record =
                Record { values: request.missing(|_| false, &limits, &self.known), limits };
        }
    }
}

/// A container of a pod with a request, before the variables are determined.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) pod_uid: String,
    /// Variables that the container does not have.
    pub(super) request: Request,
    /// The container, without variables.
    pub(super) entry: InjectedContainer,
}

impl Candidate {
    /// The container with its variables, by its place in the pod's spec and what is known of its
    /// workload; `None` if it gets none.
    pub(super) fn resolve(self, spec: Option<(Place, Known)>) -> Option<InjectedContainer> {
        let Self { request, entry, .. } = self;
        if !request.selects(&entry.container, spec.map(|(place, _)| place)) {
            return None;
        }
        let known = spec.map(|(_, known)| known).unwrap_or_default();
        let limits = entry.now.limits();
        let values = request.missing(|_| false, &limits, &known);
        let record = Record { values, limits };
        (!record.values.is_empty()).then_some(InjectedContainer { record, known, ..entry })
    }
}

/// CPU quotas and memory limits of a container and its pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Resources {
    pub(super) own: Limit,
    pub(super) pod: Limit,
}

/// `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limit {
    cpu_millis: Option<u64>,
    memory_bytes: Option<u64>,
}

impl Resources {
    pub(super) fn limits(&self) -> Limits {
        let memory = [self.own, self.pod].into_iter().filter_map(|limit| limit.memory_bytes);
        Limits {
            cpu_millis: self.own.cpu_millis,
            pod_cpu_millis: self.pod.cpu_millis,
            memory_bytes: memory.min(),
        }
    }
}

impl Limit {
    /// Limits of a container or pod, as its runtime has them.
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
        if let Some(limit) = resources.memory.as_ref().and_then(|memory| memory.limit.as_ref()) {
            self.memory_bytes = positive(limit.value);
        }
    }

    fn of_spec(resources: &model::Resources) -> Self {
        let model::Resources { cpu_limit_millis, memory_limit_bytes, .. } = *resources;
        Self { cpu_millis: cpu_limit_millis, memory_bytes: memory_limit_bytes }
    }
}

/// Period of a quota without one, µs.
const DEFAULT_PERIOD_US: u64 = 100_000;

/// The variables that a container of a listed pod would get, unless it sets them itself.
pub(super) fn would_inject(
    pod: &Pod,
    container: &model::Container,
    request: &Request,
) -> Option<String> {
    let own = Limit::of_spec(container.actual_resources.as_ref().unwrap_or(&container.resources));
    let of_pod = Limit::of_spec(pod.actual_resources.as_ref().unwrap_or(&pod.resources));
    let limits = Resources { own, pod: of_pod }.limits();
    let values = request.missing(|_| false, &limits, &Known::default());
    let values: Vec<String> =
        values.iter().map(|(variable, value)| format!("{}={value}", variable.name())).collect();
    (!values.is_empty())
        .then(|| format!("{}/{}/{} {}", pod.namespace, pod.name, container.name, values.join(" ")))
}
