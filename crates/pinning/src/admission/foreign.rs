//! Containers whose CPUs are not this agent's to write, as the runtime reports them.

use std::collections::{BTreeMap, BTreeSet};

use placement::Uid;

/// A container that another program places, or whose pod asks to leave its CPUs alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignContainer {
    /// UID of its pod, none of whose cpusets is written.
    pub pod: Uid,
    /// `namespace/pod/container`.
    pub name: String,
    /// Whether another program sets its CPUs. Such a program may place any container of the node.
    pub has_cpus: bool,
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

    /// UIDs of their pods.
    pub(crate) fn pods(&self) -> BTreeSet<Uid> {
        self.all().map(|container| container.pod.clone()).collect()
    }

    /// The obstacle to writing any cpuset, if another program sets CPUs.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let first = self.all().filter(|container| container.has_cpus).map(|one| &one.name).min()?;
        Some(format!("another NRI plugin sets the CPUs of {first}"))
    }

    fn all(&self) -> impl Iterator<Item = &ForeignContainer> {
        self.by_id.iter().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_obstacle_lasts_as_long_as_a_container_with_foreign_cpus() {
        let one = |pod: &str, has_cpus| ForeignContainer {
            pod: pod.into(),
            name: format!("shop/{pod}/app"),
            has_cpus,
        };
        let mut foreign = ForeignContainers::default();
        assert!(!foreign.is_reported());
        foreign.replace([("1".to_owned(), one("web", false))].into());
        assert!(foreign.is_reported());
        assert_eq!((foreign.obstacle(), foreign.pods()), (None, ["web".into()].into()));
        foreign.add("2", one("db", true));
        let obstacle = foreign.obstacle().unwrap();
        assert_eq!(obstacle, "another NRI plugin sets the CPUs of shop/db/app");
        assert!(foreign.remove("2") && !foreign.remove("2"));
        assert_eq!(foreign.obstacle(), None);
        assert!(foreign.remove_pod("web") && !foreign.remove_pod("web"));
        assert!(foreign.pods().is_empty());
    }
}
