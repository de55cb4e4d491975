//! Permissions of pods' claims. Authors choose labels and annotations freely; without limits,
//! anyone who can create pods could take a whole node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CpuQos, Pod, PriorityClass, ResourceSpec, Selector};
use crate::policy::ExclusivePolicy;
use crate::reason::Reason;

/// Permissions and caps of pods' claims. A [`super::Profile`] comes from the operator and needs no
/// permission, but counts toward the caps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authorization {
    /// For each of LSE, LSR and BE: the pods that may claim the class by their label. A missing
    /// class is open to all pods; an empty list permits none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<CpuQos, Vec<Selector>>,
    /// Pods whose `requiredCPUExclusivePolicy` is honored, which keeps later pods off a core or
    /// NUMA node. Empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_exclusive: Vec<Selector>,
    /// Pods whose annotation `cpu.preserve.resource-policy.nri.io` is honored, which keeps their
    /// cpusets as they are. Empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preserve_cpus: Vec<Selector>,
    /// Maximum number of exclusive CPUs on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_exclusive_cpus: Option<usize>,
    /// Maximum number of exclusive CPUs of the pods of one namespace on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_exclusive_cpus_per_namespace: Option<usize>,
    /// Maximum by namespace, which overrides `max_exclusive_cpus_per_namespace`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub max_exclusive_cpus_by_namespace: BTreeMap<String, usize>,
}

/// An invalid permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    /// A class that cannot be restricted.
    #[error("classes: only LSE, LSR and BE can be reserved, not {0:?}")]
    Class(CpuQos),
    /// An empty namespace or label key.
    #[error("{0}: an empty namespace or label key selects nothing")]
    SelectsNothing(&'static str),
}

impl Authorization {
    /// Validates a configuration.
    ///
    /// # Errors
    /// The first invalid permission.
    pub fn check(&self) -> Result<(), AuthorizationError> {
        if let Some(class) =
            self.classes.keys().find(|class| matches!(class, CpuQos::Ls | CpuQos::System))
        {
            return Err(AuthorizationError::Class(*class));
        }
        let named = [
            ("classes", self.classes.values().flatten().collect::<Vec<_>>()),
            ("requiredExclusive", self.required_exclusive.iter().collect()),
            ("preserveCpus", self.preserve_cpus.iter().collect()),
        ];
        let empty = named
            .into_iter()
            .find(|(_, selectors)| selectors.iter().any(|selector| selector.selects_nothing()));
        if let Some((key, _)) = empty {
            return Err(AuthorizationError::SelectsNothing(key));
        }
        match self.max_exclusive_cpus_by_namespace.contains_key("") {
            true => Err(AuthorizationError::SelectsNothing("maxExclusiveCpusByNamespace")),
            false => Ok(()),
        }
    }

    /// Keys of all labels that permissions select by.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let selectors = self.classes.values().flatten().chain(&self.required_exclusive);
        let selectors = selectors.chain(&self.preserve_cpus);
        selectors.flat_map(|selector| selector.match_labels.keys().map(String::as_str))
    }

    /// Whether the pod's own label may claim the class. Best-effort pods may run on the CPUs of LSR
    /// pods, so only pods that the kernel or the scheduler ranks below those may claim BE.
    pub(crate) fn class(&self, pod: &Pod, qos: CpuQos) -> Result<(), Reason> {
        let named = self.classes.get(&qos);
        if named.is_some_and(|selectors| !selectors.iter().any(|selector| selector.selects(pod))) {
            return Err(Reason::ClassNotAllowed);
        }
        let band = pod.priority.and_then(PriorityClass::of_priority);
        let is_batch = matches!(band, Some(PriorityClass::Batch | PriorityClass::Free));
        match qos {
            CpuQos::Be if !pod.best_effort && !is_batch => Err(Reason::BestEffortNotAllowed),
            _ => Ok(()),
        }
    }

    /// Whether the pod may keep its cpusets as they are.
    #[must_use]
    pub fn may_preserve_cpus(&self, pod: &Pod) -> bool {
        self.preserve_cpus.iter().any(|selector| selector.selects(pod))
    }

    /// Whether the pod's own annotation may request these policies.
    pub(crate) fn spec(&self, pod: &Pod, spec: ResourceSpec) -> Result<ResourceSpec, Reason> {
        let locks_others_out =
            spec.exclusive.required && spec.exclusive.policy != ExclusivePolicy::None;
        match locks_others_out
            && !self.required_exclusive.iter().any(|selector| selector.selects(pod))
        {
            true => Err(Reason::RequiredExclusiveNotAllowed),
            false => Ok(spec),
        }
    }

    /// Maximum number of exclusive CPUs of a namespace.
    pub(crate) fn namespace_cap(&self, namespace: &str) -> Option<usize> {
        self.max_exclusive_cpus_by_namespace
            .get(namespace)
            .copied()
            .or(self.max_exclusive_cpus_per_namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Authorization {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn of(namespace: &str) -> Pod {
        Pod { namespace: namespace.into(), ..Pod::default() }
    }

    #[test]
    fn all_may_be_lse_and_lsr_unless_a_class_is_reserved() {
        let open = Authorization::default();
        let reserved = read("classes: {LSE: [{namespaces: [trading]}], LSR: []}");
        for (qos, namespace, allowed) in [
            (CpuQos::Lse, "trading", true),
            (CpuQos::Lse, "shop", false),
            (CpuQos::Lsr, "trading", false),
        ] {
            assert_eq!(open.class(&of(namespace), qos), Ok(()));
            let expected = if allowed { Ok(()) } else { Err(Reason::ClassNotAllowed) };
            assert_eq!(reserved.class(&of(namespace), qos), expected, "{qos:?} {namespace}");
        }
    }

    #[test]
    fn best_effort_is_for_pods_that_are_ranked_behind_others_anyway() {
        let be = |best_effort, priority| {
            Authorization::default()
                .class(&Pod { best_effort, priority, ..Pod::default() }, CpuQos::Be)
        };
        assert_eq!([be(true, None), be(false, Some(5500)), be(false, Some(3000))], [Ok(()); 3]);
        assert_eq!(
            [be(false, None), be(false, Some(0)), be(false, Some(9500))],
            [Err(Reason::BestEffortNotAllowed); 3]
        );
    }

    #[test]
    fn required_exclusivity_is_honored_for_those_named_only() {
        let spec = |json| ResourceSpec::from_annotation(json).unwrap();
        let required = spec(r#"{"requiredCPUExclusivePolicy":"NUMANodeLevel"}"#);
        let named = read("requiredExclusive: [{namespaces: [trading]}]");
        assert_eq!(named.spec(&of("trading"), required), Ok(required));
        for authorization in [named, Authorization::default()] {
            assert_eq!(
                authorization.spec(&of("shop"), required),
                Err(Reason::RequiredExclusiveNotAllowed)
            );
            for harmless in [
                r#"{"requiredCPUExclusivePolicy":"None"}"#,
                r#"{"preferredCPUExclusivePolicy":"PCPULevel"}"#,
            ] {
                assert!(authorization.spec(&of("shop"), spec(harmless)).is_ok(), "{harmless}");
            }
        }
    }

    #[test]
    fn a_namespace_by_name_has_its_own_cap() {
        let caps =
            read("{maxExclusiveCpusPerNamespace: 4, maxExclusiveCpusByNamespace: {trading: 16}}");
        assert_eq!(
            (caps.namespace_cap("trading"), caps.namespace_cap("shop")),
            (Some(16), Some(4))
        );
        assert_eq!(Authorization::default().namespace_cap("shop"), None);
    }

    #[test]
    fn meaningless_rules_are_errors() {
        assert_eq!(read("classes: {LS: []}").check(), Err(AuthorizationError::Class(CpuQos::Ls)));
        for yaml in
            ["classes: {LSE: [{namespaces: ['']}]}", "requiredExclusive: [{matchLabels: {'': x}}]"]
        {
            assert!(
                matches!(read(yaml).check(), Err(AuthorizationError::SelectsNothing(_))),
                "{yaml}"
            );
        }
        assert!(serde_saphyr::from_str::<Authorization>("classes: {lse: []}").is_err());
        assert!(serde_saphyr::from_str::<Authorization>("maxCpus: 3").is_err());
        let everybody = read("requiredExclusive: [{}]");
        assert_eq!((everybody.check(), everybody.label_keys().count()), (Ok(()), 0));
    }
}
