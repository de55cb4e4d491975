//! The pod's spec, as the advice needs it.

use analysis::{Place, Spec};
use kubepods::model::ContainerKind;
use snapshot::{ContainerIdentity, SpecRow};

pub(crate) fn spec(row: SpecRow, identity: &ContainerIdentity) -> Spec {
    let cores = |millis: Option<u64>| millis.map(|millis| millis as f64 / 1000.0);
    let place = match row.kind {
        ContainerKind::App => Place::Containers,
        ContainerKind::Init | ContainerKind::Sidecar => Place::InitContainers,
        ContainerKind::Ephemeral => Place::Ephemeral,
    };
    Spec {
        place,
        limit_cores: cores(row.resources.cpu_limit_millis),
        memory_limit: row.resources.memory_limit_bytes,
        pod_limit_cores: cores(row.pod.cpu_limit_millis),
        pod_requests_cpu: row.pod_requests_cpu,
        pod_limits_memory: row.pod_limits_memory,
        pod_requests_memory: row.pod.memory_request_bytes.is_some(),
        has_memory_limits: row.memory_limits > 0,
        is_resizing: row.is_resizing,
        is_of_a_job: identity.workload.as_ref().is_some_and(|owner| &*owner.kind == "Job"),
        is_guaranteed: identity.qos_class == "Guaranteed",
        is_exclusive_class: matches!(&*identity.cpu_qos, "LSE" | "LSR"),
    }
}
