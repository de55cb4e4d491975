//! Containers whose CPUs may not be this agent's to write, as the runtime reports them.
//!
//! Every author of a pod can set variables and annotations. So a claim by a variable counts only
//! until the kubelet refutes it, and an annotation only where the operator permits it.

use std::collections::{BTreeMap, BTreeSet};

use placement::{Authorization, Pod, Uid};

/// A container that another program places, or whose author says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignContainer {
    /// UID of its pod.
    pub pod: Uid,
    /// `namespace/pod/container`.
    pub name: String,
    /// Whether another program sets its CPUs. Such a program may place any container of the node.
    pub has_cpus: bool,
    /// The pod with its namespace and labels, if an annotation asks to leave its CPUs alone.
    pub preserved: Option<Pod>,
    /// Whether a variable claims CPUs for the container.
    pub is_claimed: bool,
}

/// What the kubelet reports of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The spec or pod-resources has one.
    Confirmed,
    /// The pod is listed without one.
    Refuted,
    /// The pod is not listed yet.
    Unknown,
}

/// All of them, by container id.
#[derive(Debug, Default)]
pub(crate) struct ForeignContainers {
    /// `None` until the runtime has reported what runs.
    by_id: Option<BTreeMap<String, ForeignContainer>>,
}

impl ForeignContainers {
    pub(super) fn replace(&mut self, all: BTreeMap<String, ForeignContainer>) {
        self.by_id = Some(all);
    }

    pub(super) fn add(&mut self, id: &str, container: ForeignContainer) {
        self.by_id.get_or_insert_default().insert(id.to_owned(), container);
    }

    /// Returns whether it was one of them.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        self.by_id.as_mut().is_some_and(|all| all.remove(id).is_some())
    }

    /// Removes the containers of a pod; returns whether there were any.
    pub(super) fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(all) = &mut self.by_id else { return false };
        let count = all.len();
        all.retain(|_, container| *container.pod != *uid);
        all.len() < count
    }

    pub(super) fn is_reported(&self) -> bool {
        self.by_id.is_some()
    }

    /// UIDs of the pods whose cpusets are not written.
    pub(crate) fn pods(
        &self,
        authorization: &Authorization,
        claim: impl Fn(&ForeignContainer) -> Claim,
    ) -> BTreeSet<Uid> {
        let is_left_alone = |one: &&ForeignContainer| {
            one.has_cpus
                || one.is_preserved(authorization)
                || one.is_claimed && claim(one) != Claim::Refuted
        };
        self.all().filter(is_left_alone).map(|one| one.pod.clone()).collect()
    }

    /// Whether the pod's annotation asks to leave its CPUs alone, and may.
    pub(super) fn is_preserved(&self, uid: &Uid, authorization: &Authorization) -> bool {
        let mut of_pod = self.all().filter(|one| one.pod == *uid);
        of_pod.any(|one| one.is_preserved(authorization))
    }

    /// The obstacle to writing any cpuset, if another program sets CPUs.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let with_cpus = self.all().filter(|container| container.has_cpus);
        let first = with_cpus.map(|one| &one.name).min()?;
        // The runtime keeps what the static policy set, also under the policy none.
        Some(format!(
            "another NRI plugin, or the kubelet's static policy before it became none, has set the \
             CPUs of {first}"
        ))
    }

    fn all(&self) -> impl Iterator<Item = &ForeignContainer> {
        self.by_id.iter().flat_map(BTreeMap::values)
    }
}

impl ForeignContainer {
    fn is_preserved(&self, authorization: &Authorization) -> bool {
        self.preserved.as_ref().is_some_and(|pod| authorization.may_preserve_cpus(pod))
    }
}

#[cfg(test)]
mod tests {
    use placement::Selector;

    use super::*;

    fn one(pod: &str) -> ForeignContainer {
        let name = format!("shop/{pod}/app");
        ForeignContainer { pod: pod.into(), name, ..ForeignContainer::default() }
    }

    #[test]
    fn the_obstacle_lasts_as_long_as_a_container_with_foreign_cpus() {
        let mut foreign = ForeignContainers::default();
        assert!(!foreign.is_reported());
        foreign.replace([("1".to_owned(), one("web"))].into());
        assert!(foreign.is_reported() && foreign.obstacle().is_none());
        foreign.add("2", ForeignContainer { has_cpus: true, ..one("db") });
        let obstacle = foreign.obstacle().unwrap();
        assert!(obstacle.starts_with("another NRI plugin, or the kubelet's static policy"));
        assert!(obstacle.ends_with(" has set the CPUs of shop/db/app"), "{obstacle}");
        assert!(foreign.remove("2") && !foreign.remove("2"));
        assert_eq!(foreign.obstacle(), None);
        assert!(foreign.remove_pod("web") && !foreign.remove_pod("web"));
    }

    #[test]
    fn a_claim_by_variable_is_believed_until_the_kubelet_refutes_it() {
        let mut foreign = ForeignContainers::default();
        foreign.add("1", ForeignContainer { is_claimed: true, ..one("web") });
        let is_left_alone = |claim| !foreign.pods(&Authorization::default(), |_| claim).is_empty();
        assert!(is_left_alone(Claim::Confirmed) && is_left_alone(Claim::Unknown));
        assert!(!is_left_alone(Claim::Refuted));
    }

    #[test]
    fn cpus_are_preserved_only_where_the_operator_permits_it() {
        let mut foreign = ForeignContainers::default();
        let pod = Pod { namespace: "shop".into(), ..Pod::default() };
        foreign.add("1", ForeignContainer { preserved: Some(pod), ..one("web") });
        let of = |namespace: &str| {
            let namespaces = vec![namespace.to_owned()];
            let selector = Selector { namespaces, ..Selector::default() };
            Authorization { preserve_cpus: vec![selector], ..Authorization::default() }
        };
        for (authorization, expected) in
            [(Authorization::default(), false), (of("jobs"), false), (of("shop"), true)]
        {
            let pods = foreign.pods(&authorization, |_| Claim::Unknown);
            assert_eq!(!pods.is_empty(), expected);
            assert_eq!(foreign.is_preserved(&"web".into(), &authorization), expected);
        }
    }
}
