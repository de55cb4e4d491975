//! Profiles: the operator's settings for pods without labels of their own, instead of a
//! ClusterColocationProfile.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{CpuQos, Pod, ResourceSpec};

/// Class and policies of the pods of a selector. Set by the operator, so it overrides the pod's own
/// label and annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// Name, for logs; unique.
    pub name: String,
    /// Selector of the pods.
    pub selector: Selector,
    /// QoS class, instead of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_class: Option<CpuQos>,
    /// Policies, instead of the resource-spec annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_spec: Option<ResourceSpec>,
}

/// Selects pods by namespace and label; if both are given, both must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Selector {
    /// Matches any of these namespaces; empty matches all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Matches only if all of these labels are present; empty matches all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// An invalid profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A profile without a name.
    #[error("profile {0} of the list has no name")]
    Unnamed(usize),
    /// A name that occurs twice.
    #[error("duplicate profile {0:?}")]
    Duplicate(String),
    /// A selector that matches every pod of the node.
    #[error("profile {0:?}: the selector has neither namespaces nor matchLabels")]
    SelectsAll(String),
    /// An empty namespace or label key.
    #[error("profile {0:?}: an empty namespace or label key selects nothing")]
    SelectsNothing(String),
    /// A profile without class and policies.
    #[error("profile {0:?} has neither qosClass nor resourceSpec")]
    Empty(String),
    /// A resource-spec for pods that never get exclusive CPUs.
    #[error("profile {0:?}: a resourceSpec has no effect on pods that are neither LSE nor LSR")]
    NoEffect(String),
}

/// Validated profiles; the first that selects a pod applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profiles(Vec<Profile>);

impl Profiles {
    /// Validates the profiles of a configuration.
    ///
    /// # Errors
    /// The first invalid profile, by name.
    pub fn new(profiles: Vec<Profile>) -> Result<Self, ProfileError> {
        let mut names = BTreeSet::new();
        for (at, profile) in (1..).zip(&profiles) {
            profile.check(at)?;
            if !names.insert(&profile.name) {
                return Err(ProfileError::Duplicate(profile.name.clone()));
            }
        }
        Ok(Self(profiles))
    }

    /// The first profile that selects the pod.
    #[must_use]
    pub fn of(&self, pod: &Pod) -> Option<&Profile> {
        self.0.iter().find(|profile| profile.selector.selects(pod))
    }
}

impl Profile {
    fn check(&self, at: usize) -> Result<(), ProfileError> {
        let error: fn(String) -> ProfileError = match self {
            _ if self.name.is_empty() => return Err(ProfileError::Unnamed(at)),
            _ if self.selector == Selector::default() => ProfileError::SelectsAll,
            _ if self.selector.selects_nothing() => ProfileError::SelectsNothing,
            Self { qos_class: None, resource_spec: None, .. } => ProfileError::Empty,
            Self {
                qos_class: Some(CpuQos::Ls | CpuQos::Be | CpuQos::System),
                resource_spec: Some(_),
                ..
            } => ProfileError::NoEffect,
            _ => return Ok(()),
        };
        Err(error(self.name.clone()))
    }
}

impl Selector {
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        self.matches(&pod.namespace, &pod.labels)
    }

    /// Whether a pod with this namespace and these labels is selected.
    #[must_use]
    pub fn matches(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        (self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace))
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Whether a namespace or label key is empty, which no pod has.
    #[must_use]
    pub fn selects_nothing(&self) -> bool {
        self.namespaces.iter().chain(self.match_labels.keys()).any(String::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "
- name: web
  selector: { namespaces: [shop], matchLabels: { tier: web } }
  qosClass: LSR
  resourceSpec: { preferredCPUBindPolicy: SpreadByPCPUs }
- name: shop
  selector: { namespaces: [shop] }
  qosClass: BE
";

    fn read(yaml: &str) -> Result<Profiles, ProfileError> {
        Profiles::new(serde_saphyr::from_str(yaml).unwrap())
    }

    #[test]
    fn the_first_profile_that_selects_a_pod_is_its_profile() {
        let profiles = read(YAML).unwrap();
        let of = |namespace: &str, tier: &str| {
            let labels = [("tier".to_owned(), tier.to_owned())].into();
            let pod = Pod { namespace: namespace.into(), labels, ..Pod::default() };
            profiles.of(&pod).map(|profile| profile.name.clone())
        };
        assert_eq!(of("shop", "web").as_deref(), Some("web"));
        assert_eq!(of("shop", "batch").as_deref(), Some("shop"));
        assert_eq!(of("other", "web"), None);
    }

    #[test]
    fn profiles_that_cannot_be_meant_are_errors_that_name_them() {
        let error = |yaml| read(yaml).unwrap_err();
        let web = "web".to_owned();
        assert_eq!(error("[{name: '', selector: {}}]"), ProfileError::Unnamed(1));
        assert_eq!(
            error("[{name: web, selector: {}, qosClass: LS}]"),
            ProfileError::SelectsAll(web.clone())
        );
        assert_eq!(
            error("[{name: web, selector: {namespaces: [a]}}]"),
            ProfileError::Empty(web.clone())
        );
        let nothing = error("[{name: web, selector: {namespaces: ['']}, qosClass: LS}]");
        assert_eq!(nothing, ProfileError::SelectsNothing(web.clone()));
        let no_effect =
            error("[{name: web, selector: {namespaces: [a]}, qosClass: LS, resourceSpec: {}}]");
        assert_eq!(no_effect, ProfileError::NoEffect(web.clone()));
        let one = "{name: web, selector: {namespaces: [a]}, qosClass: LS}";
        assert_eq!(error(&format!("[{one}, {one}]")), ProfileError::Duplicate(web));
    }

    #[test]
    fn unknown_keys_and_classes_are_errors() {
        for yaml in [
            "[{name: a, selector: {namespace: [a]}, qosClass: LS}]",
            "[{name: a, selector: {namespaces: [a]}, qosClass: lsr}]",
            "[{name: a, selector: {namespaces: [a]}, class: LSR}]",
        ] {
            assert!(serde_saphyr::from_str::<Vec<Profile>>(yaml).is_err(), "{yaml}");
        }
    }
}
