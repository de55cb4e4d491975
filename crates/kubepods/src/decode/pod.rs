//! Conversion of one API object to one [`Pod`]: joins spec and status by container name, and parses
//! the quantities.

use super::keep::{ANNOTATION, IMAGE, LabelKeys, NAME, bounded};
use super::wire::{
    Amount, Annotations, ContainerStatus, Metadata, OwnerReference, SpecContainer, Terminated,
    WireAmounts, WirePod, WireResources, WireSpec, WireStatus,
};
use crate::model::{
    Container, ContainerKind, ContainerState, InjectionRequest, Owner, Phase, PinningRequest, Pod,
    Resize, Resources,
};
use crate::path::QosClass;
use crate::quantity::{millicores, whole};

/// Converts an API object to a [`Pod`] with the labels that `keep` names.
#[must_use]
pub fn from_wire(wire: WirePod, keep: &LabelKeys) -> Pod {
    let WirePod { metadata, spec, status } = wire;
    let phase = phase(status.phase.as_deref());
    let deleting = metadata.deletion_timestamp.is_some();
    let owner = owner(&metadata);
    let static_hash = static_hash(&metadata, spec.node_name.as_deref());
    let containers = containers(&spec, &status, deleting);
    let name = |text: Box<str>| bounded(text, NAME);
    let label = |key: &str| metadata.labels.get(key).cloned().map(name);
    let annotation = |text: Option<Box<str>>| text.map(|text| bounded(text, ANNOTATION));
    let pinning = PinningRequest {
        qos_class: label("koordinator.sh/qosClass"),
        priority_class: label("koordinator.sh/priority-class"),
        resource_spec: annotation(metadata.annotations.resource_spec),
        resource_status: annotation(metadata.annotations.resource_status),
    };
    let injection = InjectionRequest {
        variables: annotation(metadata.annotations.inject_env),
        containers: annotation(metadata.annotations.inject_env_containers),
    };
    Pod {
        namespace: name(metadata.namespace),
        name: name(metadata.name),
        uid: name(metadata.uid),
        static_hash: static_hash.map(name),
        node: spec.node_name.map(name),
        qos_class: status.qos_class.as_deref().and_then(QosClass::from_name),
        priority: spec.priority,
        priority_class: spec.priority_class_name.map(name),
        pinning,
        injection,
        burst: annotation(metadata.annotations.cpu_burst),
        runtime_class: spec.runtime_class_name.map(name),
        labels: keep.kept(metadata.labels),
        owner,
        phase,
        deleting,
        resources: resources(&spec.resources),
        actual_resources: status.resources.as_ref().map(resources),
        resize: resize(&status),
        unlisted: None,
        containers,
    }
}

/// The hash of a static pod. The annotation alone is not enough, because any pod's author may write
/// it. In the kubelet's list a static pod's UID is the hash; in the API server's list, its mirror
/// pod is controlled by its own node.
fn static_hash(metadata: &Metadata, node: Option<&str>) -> Option<Box<str>> {
    let Annotations { config_hash, config_mirror, .. } = &metadata.annotations;
    if config_hash.as_deref() == Some(&*metadata.uid) {
        return config_hash.clone();
    }
    let is_of_the_node = |owner: &OwnerReference| {
        owner.controller == Some(true) && &*owner.kind == "Node" && node == Some(&*owner.name)
    };
    let is_hash =
        |hash: &str| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_mirror = metadata.owner_references.iter().any(is_of_the_node);
    config_mirror
        .as_ref()
        .filter(|hash| is_mirror && config_hash == config_mirror && is_hash(hash))
        .cloned()
}

fn phase(name: Option<&str>) -> Phase {
    match name {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Unknown") => Phase::Unknown,
        _ => Phase::Pending,
    }
}

/// Controllers of ReplicaSets, by the label in which their pods have the hash of the template.
const OF_REPLICA_SETS: [(&str, &str); 2] =
    [("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")];

/// Minutes since the epoch of a CronJob's run, 2019 to 2099. Dates such as 20260131 are outside.
const MINUTES: std::ops::Range<u32> = 26_000_000..68_000_000;

/// The workload: the controlling owner, or the owner of this owner if its name contains it.
fn owner(metadata: &Metadata) -> Option<Owner> {
    let reference =
        metadata.owner_references.iter().find(|reference| reference.controller == Some(true))?;
    let above = match &*reference.kind {
        "ReplicaSet" => replica_sets_owner(&reference.name, metadata),
        "Job" => cron_job(&reference.name).map(|name| ("CronJob", name)),
        _ => None,
    };
    let (kind, name) = above.unwrap_or((&reference.kind, &reference.name));
    Some(Owner { kind: bounded(kind.into(), NAME), name: bounded(name.into(), NAME) })
}

/// A ReplicaSet of a Deployment, or of a Rollout of Argo, is named `<owner>-<hash>`, and its pods
/// have that hash as a label. Without the label, the ReplicaSet has no owner.
fn replica_sets_owner<'a>(name: &'a str, metadata: &Metadata) -> Option<(&'static str, &'a str)> {
    OF_REPLICA_SETS.iter().find_map(|(label, kind)| {
        let hash = metadata.labels.get(*label)?;
        let owner = name.strip_suffix(&**hash)?.strip_suffix('-')?;
        (!owner.is_empty()).then_some((*kind, owner))
    })
}

/// The CronJob of a Job: the controller names the Job `<cronjob>-<minute>`, by the minute of its
/// run since the epoch.
fn cron_job(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    let is_minute = minute.len() == 8 && minute.parse().is_ok_and(|at| MINUTES.contains(&at));
    (is_minute && !name.is_empty()).then_some(name)
}

fn resize(status: &WireStatus) -> Option<Resize> {
    let by_name = |name: &str| match name {
        "Proposed" => Some(Resize::Proposed),
        "InProgress" => Some(Resize::InProgress),
        "Deferred" => Some(Resize::Deferred),
        "Infeasible" => Some(Resize::Infeasible),
        _ => None,
    };
    let condition =
        |kind: &str| status.conditions.iter().find(|c| &*c.kind == kind && &*c.status == "True");
    if let Some(pending) = condition("PodResizePending") {
        return Some(pending.reason.as_deref().and_then(by_name).unwrap_or(Resize::Deferred));
    }
    if condition("PodResizeInProgress").is_some() {
        return Some(Resize::InProgress);
    }
    status.resize.as_deref().and_then(by_name)
}

fn containers(spec: &WireSpec, status: &WireStatus, deleting: bool) -> Vec<Container> {
    let pod_policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let init =
        spec.init_containers.iter().map(|c| (c, init_kind(c), &status.init_container_statuses));
    let app = spec.containers.iter().map(|c| (c, ContainerKind::App, &status.container_statuses));
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .map(|c| (c, ContainerKind::Ephemeral, &status.ephemeral_container_statuses));
    init.chain(app)
        .chain(ephemeral)
        .map(|(container, kind, statuses)| {
            let status = statuses.iter().find(|status| status.name == container.name);
            let policy = container.restart_policy.as_deref().unwrap_or(pod_policy);
            let has_rules = container.restart_policy_rules.is_some();
            join(container, kind, status, RestartRules { policy, has_rules, deleting })
        })
        .collect()
}

fn init_kind(container: &SpecContainer) -> ContainerKind {
    match container.restart_policy.as_deref() {
        Some("Always") => ContainerKind::Sidecar,
        _ => ContainerKind::Init,
    }
}

/// Settings that decide whether an ended container is restarted.
#[derive(Clone, Copy)]
struct RestartRules<'a> {
    /// The container's own policy, or else the pod's.
    policy: &'a str,
    has_rules: bool,
    deleting: bool,
}

impl RestartRules<'_> {
    /// Whether the kubelet will not restart the container after this end.
    fn is_last_run(self, kind: ContainerKind, ended: &Terminated) -> bool {
        let well = ended.exit_code == Some(0);
        if self.deleting || kind == ContainerKind::Ephemeral {
            return true;
        }
        !self.has_rules
            && match kind {
                ContainerKind::Init => well || self.policy == "Never",
                ContainerKind::App => {
                    self.policy == "Never" || (well && self.policy == "OnFailure")
                }
                ContainerKind::Sidecar | ContainerKind::Ephemeral => false,
            }
    }
}

fn join(
    spec: &SpecContainer,
    kind: ContainerKind,
    status: Option<&ContainerStatus>,
    rules: RestartRules<'_>,
) -> Container {
    let mut container = Container {
        name: bounded(spec.name.clone(), NAME),
        kind,
        image: bounded(spec.image.clone(), IMAGE),
        has_claims: !spec.resources.claims.is_empty(),
        resources: resources(&spec.resources),
        ..Container::default()
    };
    let Some(status) = status else { return container };
    let ended = status.state.terminated.as_ref();
    let present = status.container_id.as_deref().filter(|id| !id.is_empty());
    let present = present.or_else(|| ended.and_then(|ended| ended.container_id.as_deref()));
    let last =
        status.last_state.terminated.as_ref().and_then(|ended| ended.container_id.as_deref());
    container.id = present.map(|id| bounded(bare_id(id).into(), NAME));
    container.last_id = last.map(|id| bounded(bare_id(id).into(), NAME));
    let runtime = present.and_then(|id| id.split_once("://")).map(|(runtime, _)| runtime);
    container.runtime = runtime.map(|runtime| bounded(runtime.into(), NAME));
    container.actual_resources = status.resources.as_ref().map(resources);
    container.restart_count = status.restart_count.unwrap_or(0);
    container.state = state(status);
    container.is_final = match container.state {
        ContainerState::Running => container.id.is_some(),
        ContainerState::Terminated => ended.is_some_and(|ended| rules.is_last_run(kind, ended)),
        ContainerState::Waiting | ContainerState::Unreported => false,
    };
    container
}

fn state(status: &ContainerStatus) -> ContainerState {
    if status.state.running.is_some() {
        ContainerState::Running
    } else if status.state.terminated.is_some() {
        ContainerState::Terminated
    } else {
        // An empty state means waiting, according to the API's comment on ContainerState.
        ContainerState::Waiting
    }
}

/// `containerd://<id>` without the runtime's name.
fn bare_id(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}

fn resources(wire: &WireResources) -> Resources {
    let (cpu_request_millis, memory_request_bytes) = amounts(&wire.requests);
    // The kubelet and the QoS class treat a limit of 0 as none.
    let positive = |limit: Option<u64>| limit.filter(|&limit| limit > 0);
    let (cpu_limit, memory_limit) = amounts(&wire.limits);
    let (cpu_limit_millis, memory_limit_bytes) = (positive(cpu_limit), positive(memory_limit));
    Resources { cpu_request_millis, cpu_limit_millis, memory_request_bytes, memory_limit_bytes }
}

fn amounts(wire: &WireAmounts) -> (Option<u64>, Option<u64>) {
    let cpu = match &wire.cpu {
        Some(Amount::Text(text)) => millicores(text).ok(),
        Some(Amount::Number(cores)) => cores.checked_mul(1000),
        _ => None,
    };
    let memory = match &wire.memory {
        Some(Amount::Text(text)) => whole(text).ok(),
        Some(Amount::Number(bytes)) => Some(*bytes),
        _ => None,
    };
    (cpu, memory)
}
