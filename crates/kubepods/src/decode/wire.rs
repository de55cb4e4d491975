//! The parts of `v1.Pod` that are read, in the API's own form. Unknown fields are skipped without
//! being stored.

#![expect(missing_docs, reason = "names and meanings are those of the Kubernetes API")]

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::keep::POD_OBJECTS;

/// Treats an explicit null like an absent field: Go prints `null` for nil slices and maps without
/// `omitempty`.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// As [`nullable`], for a list. Stores one element more than a pod may have, which shows that it is
/// too large.
fn few<'de, D: Deserializer<'de>, T: FromElements<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_option(Few(PhantomData))
}

/// A collection that is read element by element.
trait FromElements<'de>: Default {
    fn read_seq<A: SeqAccess<'de>>(&mut self, _: A) -> Result<(), A::Error> {
        Err(serde::de::Error::custom("an array instead of an object"))
    }

    fn read_map<A: MapAccess<'de>>(&mut self, _: A) -> Result<(), A::Error> {
        Err(serde::de::Error::custom("an object instead of an array"))
    }

    fn read<D: Deserializer<'de>>(visitor: Few<Self>, deserializer: D) -> Result<Self, D::Error>;
}

impl<'de, T: Deserialize<'de>> FromElements<'de> for Vec<T> {
    fn read_seq<A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        while self.len() <= POD_OBJECTS {
            let Some(element) = list.next_element()? else { return Ok(()) };
            self.push(element);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn read<D: Deserializer<'de>>(visitor: Few<Self>, deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(visitor)
    }
}

impl<'de> FromElements<'de> for BTreeMap<Box<str>, Box<str>> {
    fn read_map<A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        while self.len() <= POD_OBJECTS {
            let Some((key, value)) = map.next_entry()? else { return Ok(()) };
            self.insert(key, value);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn read<D: Deserializer<'de>>(visitor: Few<Self>, deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(visitor)
    }
}

struct Few<T>(PhantomData<T>);

impl<'de, T: FromElements<'de>> Visitor<'de> for Few<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_none<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(self, deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        let mut all = T::default();
        all.read_seq(list).map(|()| all)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let mut all = T::default();
        all.read_map(map).map(|()| all)
    }
}

impl WirePod {
    /// Whether a list of the pod has more than [`POD_OBJECTS`] elements.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        let Self { metadata, spec, status } = self;
        let lengths = [
            metadata.labels.len(),
            metadata.owner_references.len(),
            spec.init_containers.len(),
            spec.containers.len(),
            spec.ephemeral_containers.len(),
            status.conditions.len(),
            status.init_container_statuses.len(),
            status.container_statuses.len(),
            status.ephemeral_container_statuses.len(),
        ];
        lengths.into_iter().any(|length| length > POD_OBJECTS)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WirePod {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    pub spec: WireSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: WireStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub uid: Box<str>,
    /// Needed only for a watch on the API server.
    pub resource_version: Option<Box<str>>,
    pub deletion_timestamp: Option<Box<str>>,
    #[serde(deserialize_with = "few")]
    pub labels: BTreeMap<Box<str>, Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub annotations: Annotations,
    #[serde(deserialize_with = "few")]
    pub owner_references: Vec<OwnerReference>,
}

/// The annotations that are kept: others may be as large as 256 KiB.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Annotations {
    #[serde(rename = "kubernetes.io/config.hash")]
    pub config_hash: Option<Box<str>>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub config_mirror: Option<Box<str>>,
    #[serde(rename = "scheduling.koordinator.sh/resource-spec")]
    pub resource_spec: Option<Box<str>>,
    #[serde(rename = "scheduling.koordinator.sh/resource-status")]
    pub resource_status: Option<Box<str>>,
    #[serde(rename = "koordinator.sh/cpuBurst")]
    pub cpu_burst: Option<Box<str>>,
    #[serde(rename = "cpuwarden.io/inject-env")]
    pub inject_env: Option<Box<str>>,
    #[serde(rename = "cpuwarden.io/inject-env-containers")]
    pub inject_env_containers: Option<Box<str>>,
}

impl Annotations {
    /// The kept annotations of a source that is not JSON: `value` returns the one with a key.
    pub fn from_keys(mut value: impl FnMut(&str) -> Option<Box<str>>) -> Self {
        Self {
            config_hash: value("kubernetes.io/config.hash"),
            config_mirror: value("kubernetes.io/config.mirror"),
            resource_spec: value("scheduling.koordinator.sh/resource-spec"),
            resource_status: value("scheduling.koordinator.sh/resource-status"),
            cpu_burst: value("koordinator.sh/cpuBurst"),
            inject_env: value("cpuwarden.io/inject-env"),
            inject_env_containers: value("cpuwarden.io/inject-env-containers"),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    pub kind: Box<str>,
    pub name: Box<str>,
    pub controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WireSpec {
    pub node_name: Option<Box<str>>,
    pub priority: Option<i32>,
    pub priority_class_name: Option<Box<str>>,
    pub runtime_class_name: Option<Box<str>>,
    pub restart_policy: Option<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub resources: WireResources,
    #[serde(deserialize_with = "few")]
    pub init_containers: Vec<SpecContainer>,
    #[serde(deserialize_with = "few")]
    pub containers: Vec<SpecContainer>,
    #[serde(deserialize_with = "few")]
    pub ephemeral_containers: Vec<SpecContainer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpecContainer {
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub image: Box<str>,
    pub restart_policy: Option<Box<str>>,
    /// Exit codes that override the policy (1.34 and later); only their presence matters here.
    pub restart_policy_rules: Option<IgnoredAny>,
    #[serde(deserialize_with = "nullable")]
    pub resources: WireResources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireResources {
    #[serde(deserialize_with = "nullable")]
    pub requests: WireAmounts,
    #[serde(deserialize_with = "nullable")]
    pub limits: WireAmounts,
    /// Claims of dynamic resource allocation; only their presence matters here.
    #[serde(deserialize_with = "nullable")]
    pub claims: Vec<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireAmounts {
    pub cpu: Option<Amount>,
    pub memory: Option<Amount>,
}

/// A quantity: always a string from Go, but some proxies pass bare numbers from YAML through.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Text(Box<str>),
    Number(u64),
    Other(IgnoredAny),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WireStatus {
    pub phase: Option<Box<str>>,
    pub qos_class: Option<Box<str>>,
    pub resize: Option<Box<str>>,
    pub resources: Option<WireResources>,
    #[serde(deserialize_with = "few")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "few")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "few")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "few")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    pub reason: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: Box<str>,
    #[serde(rename = "containerID")]
    pub container_id: Option<Box<str>>,
    pub restart_count: Option<u32>,
    #[serde(deserialize_with = "nullable")]
    pub state: WireState,
    #[serde(deserialize_with = "nullable")]
    pub last_state: WireState,
    pub resources: Option<WireResources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireState {
    pub running: Option<IgnoredAny>,
    pub terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    pub exit_code: Option<i32>,
    #[serde(rename = "containerID")]
    pub container_id: Option<Box<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_have_the_same_keys_in_json_and_elsewhere() {
        let mut all = serde_json::Map::new();
        let of_keys = Annotations::from_keys(|key| {
            all.insert(key.to_owned(), key.into());
            Some(key.into())
        });
        let of_json: Annotations = serde_json::from_value(all.into()).unwrap();
        assert_eq!(format!("{of_json:?}"), format!("{of_keys:?}"));
    }
}
