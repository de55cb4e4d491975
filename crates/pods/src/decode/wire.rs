//! The parts of `v1.Pod` that are read, in the API's own form. Unknown fields are skipped without being stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Treats an explicit null like an absent field: Go prints `null` for nil slices and maps without `omitempty`.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePod {
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub(crate) spec: Spec,
    #[serde(deserialize_with = "nullable")]
    pub(crate) status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: Box<str>,
    pub(crate) namespace: Box<str>,
    pub(crate) uid: Box<str>,
    /// Needed only for a watch on the API server.
    pub(crate) resource_version: Option<Box<str>>,
    pub(crate) deletion_timestamp: Option<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) labels: BTreeMap<Box<str>, Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) annotations: Annotations,
    #[serde(deserialize_with = "nullable")]
    pub(crate) owner_references: Vec<OwnerReference>,
}

/// The annotations that are kept: others may be as large as 256 KiB.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotations {
    #[serde(rename = "kubernetes.io/config.hash")]
    pub(crate) config_hash: Option<Box<str>>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub(crate) config_mirror: Option<Box<str>>,
    #[serde(rename = "scheduling.koordinator.sh/resource-spec")]
    pub(crate) resource_spec: Option<Box<str>>,
    #[serde(rename = "scheduling.koordinator.sh/resource-status")]
    pub(crate) resource_status: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OwnerReference {
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) node_name: Option<Box<str>>,
    pub(crate) priority: Option<i32>,
    pub(crate) priority_class_name: Option<Box<str>>,
    pub(crate) restart_policy: Option<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resources: WireResources,
    #[serde(deserialize_with = "nullable")]
    pub(crate) init_containers: Vec<SpecContainer>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) containers: Vec<SpecContainer>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ephemeral_containers: Vec<SpecContainer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpecContainer {
    pub(crate) name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) image: Box<str>,
    pub(crate) restart_policy: Option<Box<str>>,
    /// Exit codes that override the policy (1.34 and later); only their presence matters here.
    pub(crate) restart_policy_rules: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resources: WireResources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireResources {
    #[serde(deserialize_with = "nullable")]
    pub(crate) requests: WireAmounts,
    #[serde(deserialize_with = "nullable")]
    pub(crate) limits: WireAmounts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireAmounts {
    pub(crate) cpu: Option<Amount>,
    pub(crate) memory: Option<Amount>,
}

/// A quantity: always a string from Go, but some proxies pass bare numbers from YAML through.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Amount {
    Text(Box<str>),
    Number(u64),
    Other(serde::de::IgnoredAny),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) phase: Option<Box<str>>,
    pub(crate) qos_class: Option<Box<str>>,
    pub(crate) resize: Option<Box<str>>,
    pub(crate) resources: Option<WireResources>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: Box<str>,
    pub(crate) status: Box<str>,
    pub(crate) reason: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: Box<str>,
    #[serde(rename = "containerID")]
    pub(crate) container_id: Option<Box<str>>,
    pub(crate) restart_count: Option<u32>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) state: WireState,
    #[serde(deserialize_with = "nullable")]
    pub(crate) last_state: WireState,
    pub(crate) resources: Option<WireResources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireState {
    pub(crate) running: Option<serde::de::IgnoredAny>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Terminated {
    pub(crate) exit_code: Option<i32>,
    #[serde(rename = "containerID")]
    pub(crate) container_id: Option<Box<str>>,
}
