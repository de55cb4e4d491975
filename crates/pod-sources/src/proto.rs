//! Conversion of a protobuf `v1.Pod` to the same intermediate form as JSON ([`kubepods::wire`]), so
//! that the same code joins both.
//!
//! Go's encoder writes empty strings for fields that JSON omits; here they are absent again.

use std::collections::HashMap;

use kubepods::wire::{
    Amount, Annotations, Condition, ContainerStatus, Metadata, OwnerReference, SpecContainer,
    Terminated, WireAmounts, WirePod, WireResources, WireSpec, WireState, WireStatus,
};
use serde::de::IgnoredAny;

use crate::grpc::core_v1;

type Text = Option<Box<str>>;

pub(crate) fn to_wire(pod: core_v1::Pod) -> WirePod {
    WirePod {
        metadata: pod.metadata.map(metadata).unwrap_or_default(),
        spec: pod.spec.map(spec).unwrap_or_default(),
        status: pod.status.map(status).unwrap_or_default(),
    }
}

fn some(text: Option<String>) -> Text {
    text.filter(|text| !text.is_empty()).map(String::into_boxed_str)
}

fn boxed(text: Option<String>) -> Box<str> {
    text.unwrap_or_default().into_boxed_str()
}

fn metadata(meta: core_v1::ObjectMeta) -> Metadata {
    let mut annotations = meta.annotations;
    Metadata {
        name: boxed(meta.name),
        namespace: boxed(meta.namespace),
        uid: boxed(meta.uid),
        resource_version: None,
        deletion_timestamp: meta.deletion_timestamp.map(|_| "".into()),
        annotations: Annotations::from_keys(|key| {
            annotations.remove(key).map(String::into_boxed_str)
        }),
        labels: meta.labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        owner_references: meta.owner_references.into_iter().map(owner).collect(),
    }
}

fn owner(reference: core_v1::OwnerReference) -> OwnerReference {
    OwnerReference {
        kind: boxed(reference.kind),
        name: boxed(reference.name),
        controller: reference.controller,
    }
}

fn spec(spec: core_v1::PodSpec) -> WireSpec {
    let ephemeral =
        spec.ephemeral_containers.into_iter().filter_map(|c| c.ephemeral_container_common);
    WireSpec {
        node_name: some(spec.node_name),
        priority: spec.priority,
        priority_class_name: some(spec.priority_class_name),
        runtime_class_name: some(spec.runtime_class_name),
        restart_policy: some(spec.restart_policy),
        resources: resources(spec.resources),
        init_containers: spec.init_containers.into_iter().map(container).collect(),
        containers: spec.containers.into_iter().map(container).collect(),
        ephemeral_containers: ephemeral.map(container).collect(),
    }
}

fn container(container: core_v1::Container) -> SpecContainer {
    SpecContainer {
        name: boxed(container.name),
        image: boxed(container.image),
        restart_policy: some(container.restart_policy),
        restart_policy_rules: (!container.restart_policy_rules.is_empty()).then_some(IgnoredAny),
        resources: resources(container.resources),
    }
}

fn resources(wire: Option<core_v1::ResourceRequirements>) -> WireResources {
    let wire = wire.unwrap_or_default();
    WireResources {
        requests: amounts(wire.requests),
        limits: amounts(wire.limits),
        claims: vec![IgnoredAny; wire.claims.len()],
    }
}

fn amounts(mut quantities: HashMap<String, core_v1::Quantity>) -> WireAmounts {
    let mut amount =
        |name: &str| quantities.remove(name).and_then(|q| some(q.string)).map(Amount::Text);
    WireAmounts { cpu: amount("cpu"), memory: amount("memory") }
}

fn status(status: core_v1::PodStatus) -> WireStatus {
    let statuses =
        |list: Vec<core_v1::ContainerStatus>| list.into_iter().map(container_status).collect();
    WireStatus {
        phase: some(status.phase),
        qos_class: some(status.qos_class),
        resize: some(status.resize),
        resources: status.resources.map(|wire| resources(Some(wire))),
        conditions: status.conditions.into_iter().map(condition).collect(),
        init_container_statuses: statuses(status.init_container_statuses),
        container_statuses: statuses(status.container_statuses),
        ephemeral_container_statuses: statuses(status.ephemeral_container_statuses),
    }
}

fn condition(condition: core_v1::PodCondition) -> Condition {
    Condition {
        kind: boxed(condition.r#type),
        status: boxed(condition.status),
        reason: some(condition.reason),
    }
}

fn container_status(status: core_v1::ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        name: boxed(status.name),
        container_id: some(status.container_id),
        restart_count: status.restart_count.and_then(|count| u32::try_from(count).ok()),
        state: state(status.state),
        last_state: state(status.last_state),
        resources: status.resources.map(|wire| resources(Some(wire))),
    }
}

fn state(wire: Option<core_v1::ContainerState>) -> WireState {
    let wire = wire.unwrap_or_default();
    WireState {
        running: wire.running.map(|_| IgnoredAny),
        terminated: wire.terminated.map(|ended| Terminated {
            exit_code: ended.exit_code,
            container_id: some(ended.container_id),
        }),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::to_wire;
    use crate::grpc::{core_v1, pods_v1alpha1};
    use kubepods::{LabelKeys, from_wire, read_pod_list};

    const JSON: &[u8] = include_bytes!("../../kubepods/tests/data/kubelet-1.32-pods.json");
    /// The same pods, encoded by Kubernetes' own Go types.
    const PROTOBUF: &[u8] = include_bytes!("../../kubepods/tests/data/kubelet-1.32-pods.pb");

    #[test]
    fn protobuf_and_json_decode_to_the_same_pod() {
        let list = pods_v1alpha1::ListPodsResponse::decode(PROTOBUF).unwrap();
        let pods: Vec<_> = list
            .pods
            .into_iter()
            .map(|pod| from_wire(to_wire(core_v1::Pod::decode(pod).unwrap()), &LabelKeys::All))
            .collect();
        let expected: Vec<_> =
            read_pod_list(JSON).unwrap().iter().map(|pod| (**pod).clone()).collect();
        assert_eq!(pods.len(), 7);
        assert_eq!(pods, expected);
    }

    #[test]
    fn any_bytes_decode_to_a_pod_or_an_error() {
        let read = |pod: core_v1::Pod| from_wire(to_wire(pod), &LabelKeys::All);
        corpus::run(
            env!("CARGO_MANIFEST_DIR"),
            "pod_proto",
            &[b"\x0a\x00", b"\x12\x02\x12\x00", b"cpu"],
            |bytes| {
                // An empty message takes two bytes, but a few hundred as a container.
                let limit = (64 << 10) + 1024 * bytes.len();
                let Ok(wire) = corpus::within(limit, || core_v1::Pod::decode(bytes)) else {
                    return;
                };
                let written = wire.encode_to_vec();
                assert_eq!(core_v1::Pod::decode(&written[..]).expect("it was just encoded"), wire);
                let pod = corpus::within(limit, || read(wire));
                assert!([&pod.name, &pod.namespace, &pod.uid].iter().all(|text| text.len() <= 256));
                assert!(
                    pod.containers
                        .iter()
                        .all(|container| container.name.len() <= 256
                            && container.image.len() <= 1024)
                );
            },
        );
    }
}
