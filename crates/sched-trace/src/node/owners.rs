//! Owners of cgroups by inode: from the sampler's rows with the names of their series, or from the
//! path for all others.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Instant;

use cgroup_tree::PathIndex;
use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use snapshot::{CgroupKind, CgroupRow, ContainerIdentity, NodeSnapshot, PodIdentity};

use crate::waits::{ContainerId, Owner, Owners, PodId};

/// Number of polls for which a removed cgroup keeps its owner: the program's counts are read at the
/// next poll, and the snapshot is older than the poll.
const KEPT_POLLS: u64 = 5;

/// The owners of a node's cgroups, and their ids for the trace.
#[derive(Debug)]
pub(crate) struct NodeOwners {
    index: PathIndex,
    now: Instant,
    poll: u64,
    next_id: u64,
    /// By the labels of the container's series.
    containers: HashMap<Box<str>, Seen<(ContainerId, PodId)>>,
    container_ids: HashSet<ContainerId>,
    /// By namespace and name.
    pods: HashMap<(String, String), PodId>,
    named: HashMap<PodId, Seen<NamedPod>>,
    /// Pods that are gone, and the last poll that saw them.
    gone: HashMap<PodId, Seen<NamedPod>>,
    cgroups: HashMap<u64, Seen<Owner>>,
    /// Owners of the existing kubelet cgroups, by path.
    paths: HashMap<Arc<str>, Owner>,
    /// The containers of the last snapshot, in its order, and its cgroups.
    rows: Vec<(Arc<ContainerIdentity>, ContainerId)>,
    cgroup_rows: Vec<CgroupRow>,
    /// The last poll whose snapshot had others than the one before.
    changed: u64,
    /// The last poll with whose snapshot a container or a pod left.
    left: u64,
}

/// Names of a pod.
#[derive(Debug, Clone)]
pub(crate) struct NamedPod {
    pub(crate) identity: Arc<PodIdentity>,
    pub(crate) namespace: Arc<str>,
    pub(crate) pod: Arc<str>,
}

impl NamedPod {
    fn new(namespace: &str, pod: &str) -> Self {
        let identity = Arc::new(PodIdentity::new(namespace.to_owned(), pod.to_owned()));
        Self { identity, namespace: namespace.into(), pod: pod.into() }
    }
}

/// A value, and the last poll that saw it.
#[derive(Debug, Clone, Copy)]
struct Seen<T> {
    it: T,
    poll: u64,
}

impl NodeOwners {
    /// `index`: paths of the hierarchy with the cpu controller.
    pub(crate) fn new(index: PathIndex) -> Self {
        Self {
            index,
            now: Instant::now(),
            poll: 0,
            next_id: 0,
            containers: HashMap::new(),
            container_ids: HashSet::new(),
            pods: HashMap::new(),
            named: HashMap::new(),
            gone: HashMap::new(),
            cgroups: HashMap::new(),
            paths: HashMap::new(),
            rows: Vec::new(),
            cgroup_rows: Vec::new(),
            changed: 0,
            left: 0,
        }
    }

    /// Updates the owners from a snapshot. Polls without a change are not counted, once nothing
    /// waits to be forgotten.
    pub(crate) fn refresh(&mut self, snapshot: &NodeSnapshot, now: Instant) {
        self.now = now;
        let is_known = self.is_known(snapshot);
        if is_known && self.poll > self.changed + KEPT_POLLS + 1 {
            return;
        }
        self.poll += 1;
        if !is_known {
            self.changed = self.poll;
            self.cgroup_rows.clone_from(&snapshot.cgroups);
        }
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        for row in &snapshot.containers {
            let (container, _) = self.container(&row.identity);
            rows.push((Arc::clone(&row.identity), container));
        }
        self.rows = rows;
        self.paths.clear();
        let is_pod = |row: &&CgroupRow| matches!(row.kind, CgroupKind::Pod);
        let pods: HashSet<&str> =
            snapshot.cgroups.iter().filter(is_pod).map(|row| &*row.path).collect();
        // Containers first, because they determine the pod of the other cgroups.
        for row in &snapshot.cgroups {
            if let CgroupKind::Container(identity) = &row.kind {
                let (container, pod) = self.container(identity);
                self.own(row, Owner::Container { container, pod });
                // A container outside of the kubepods roots is not below its pod.
                if let Some(above) = parent(&row.path).filter(|above| pods.contains(above)) {
                    self.paths.insert(above.into(), Owner::Pod(pod));
                }
            }
        }
        for row in &snapshot.cgroups {
            let of_pod = |path: &str| self.paths.get(path).copied().unwrap_or(Owner::Unknown);
            match row.kind {
                CgroupKind::Container(_) => {}
                CgroupKind::Pod => self.own(row, of_pod(&row.path)),
                CgroupKind::Sandbox => self.own(row, of_pod(parent(&row.path).unwrap_or(""))),
                CgroupKind::Pending | CgroupKind::AbovePods => self.own(row, Owner::Unknown),
            }
        }
        self.forget();
    }

    /// Whether the snapshot has the same containers and cgroups as the last one.
    fn is_known(&self, snapshot: &NodeSnapshot) -> bool {
        let (rows, cgroups) = (&snapshot.containers, &snapshot.cgroups);
        self.rows.len() == rows.len()
            && self.cgroup_rows.len() == cgroups.len()
            && self.rows.iter().zip(rows).all(|(known, row)| Arc::ptr_eq(&known.0, &row.identity))
            && self.cgroup_rows.iter().zip(cgroups).all(|(known, row)| is_same(known, row))
    }

    fn own(&mut self, row: &CgroupRow, owner: Owner) {
        self.cgroups.insert(row.inode, Seen { it: owner, poll: self.poll });
        self.paths.insert(Arc::clone(&row.path), owner);
    }

    fn forget(&mut self) {
        let now = self.poll;
        self.cgroups.retain(|_, cgroup| cgroup.poll + KEPT_POLLS >= now);
        let Self { containers, pods, container_ids, named, gone, .. } = self;
        gone.retain(|_, pod| pod.poll + KEPT_POLLS >= now);
        let before = containers.len();
        containers.retain(|_, container| container.poll == now);
        // A pod leaves with its last container.
        if containers.len() == before {
            return;
        }
        self.left = now;
        *container_ids = containers.values().map(|container| container.it.0).collect();
        pods.retain(|_, pod| named.get(pod).is_some_and(|pod| pod.poll == now));
        for (pod, names) in named.extract_if(|_, pod| pod.poll != now) {
            gone.insert(pod, Seen { it: names.it, poll: now });
        }
    }

    fn container(&mut self, identity: &ContainerIdentity) -> (ContainerId, PodId) {
        let poll = self.poll;
        if let Some(seen) = self.containers.get_mut(&identity.labels) {
            seen.poll = poll;
            let (container, pod) = seen.it;
            if let Some(pod) = self.named.get_mut(&pod) {
                pod.poll = poll;
            }
            return (container, pod);
        }
        let pod = self.pod(&identity.namespace, &identity.pod);
        self.next_id += 1;
        let container = ContainerId(self.next_id);
        self.containers.insert(identity.labels.clone(), Seen { it: (container, pod), poll });
        self.container_ids.insert(container);
        (container, pod)
    }

    fn pod(&mut self, namespace: &str, name: &str) -> PodId {
        let Self { pods, named, next_id, poll, .. } = self;
        let pod = *pods.entry((namespace.to_owned(), name.to_owned())).or_insert_with(|| {
            *next_id += 1;
            PodId(*next_id)
        });
        let names = || NamedPod::new(namespace, name);
        named.entry(pod).or_insert_with(|| Seen { it: names(), poll: *poll }).poll = *poll;
        pod
    }

    /// The containers of the last snapshot, in its order.
    pub(crate) fn rows(&self) -> &[(Arc<ContainerIdentity>, ContainerId)] {
        &self.rows
    }

    pub(crate) fn is_container(&self, container: ContainerId) -> bool {
        self.container_ids.contains(&container)
    }

    /// Name of the pod; that of a pod that is gone as long as its cgroups have an owner.
    pub(crate) fn name(&self, pod: PodId) -> Option<&Arc<PodIdentity>> {
        let seen = self.named.get(&pod).or_else(|| self.gone.get(&pod));
        seen.map(|seen| &seen.it.identity)
    }

    /// Names of a pod that is not gone.
    pub(crate) fn named(&self, pod: PodId) -> Option<&NamedPod> {
        self.named.get(&pod).map(|seen| &seen.it)
    }

    /// Name of a pod that is not gone.
    pub(crate) fn identity(&self, pod: PodId) -> Option<&Arc<PodIdentity>> {
        self.named(pod).map(|names| &names.identity)
    }

    /// Owner of a cgroup that the sampler does not know: the container above it, else the pod, else
    /// the system.
    fn owner_by_path(&mut self, cgroup: u64) -> Owner {
        let Some(path) = self.index.path(cgroup, self.now) else { return Owner::Unknown };
        let mut ancestors = std::iter::successors(Some(path), |path| parent(path));
        ancestors.find_map(|path| self.paths.get(path)).copied().unwrap_or(Owner::System)
    }
}

/// Whether both are the same cgroup in the same role.
fn is_same(known: &CgroupRow, row: &CgroupRow) -> bool {
    let is_same_kind = match (&known.kind, &row.kind) {
        (CgroupKind::Container(known), CgroupKind::Container(row)) => Arc::ptr_eq(known, row),
        (known, row) => discriminant(known) == discriminant(row),
    };
    is_same_kind && known.inode == row.inode && Arc::ptr_eq(&known.path, &row.path)
}

/// Path of the cgroup above; `None` directly below the mount.
fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

impl Owners for NodeOwners {
    fn owner(&mut self, cgroup: u64) -> Owner {
        match self.cgroups.get(&cgroup) {
            Some(seen) => seen.it,
            None => self.owner_by_path(cgroup),
        }
    }

    fn has_container(&self, container: ContainerId) -> bool {
        self.is_container(container)
    }

    fn has_pod(&self, pod: PodId) -> bool {
        self.named.contains_key(&pod)
    }

    /// For some polls, because its cgroups keep their owner.
    fn any_gone(&self) -> bool {
        self.left + KEPT_POLLS + 1 >= self.poll
    }
}

#[cfg(test)]
mod tests {
    use snapshot::{ContainerRow, labels};

    use super::*;

    fn identity(pod: &str, container: &str) -> Arc<ContainerIdentity> {
        let labels =
            labels::pairs(&[("namespace", "shop"), ("pod", pod), ("container", container)]);
        let (namespace, pod, container) = ("shop".to_owned(), pod.to_owned(), container.to_owned());
        Arc::new(ContainerIdentity {
            labels,
            namespace,
            pod,
            container,
            ..ContainerIdentity::default()
        })
    }

    fn row(inode: u64, path: &str, kind: CgroupKind) -> CgroupRow {
        CgroupRow { inode, path: path.into(), kind }
    }

    /// Pod 1 with a container, a sandbox and a container without a name yet; pod 2 with only its
    /// cgroup.
    fn snapshot() -> NodeSnapshot {
        let cart = identity("cart", "app");
        let containers =
            vec![ContainerRow { identity: Arc::clone(&cart), ..ContainerRow::default() }];
        let cgroups = vec![
            row(1, "kubepods", CgroupKind::AbovePods),
            row(10, "kubepods/pod1", CgroupKind::Pod),
            row(11, "kubepods/pod1/a", CgroupKind::Container(cart)),
            row(12, "kubepods/pod1/b", CgroupKind::Sandbox),
            row(13, "kubepods/pod1/c", CgroupKind::Pending),
            row(20, "kubepods/pod2", CgroupKind::Pod),
        ];
        NodeSnapshot { containers, cgroups, ..NodeSnapshot::default() }
    }

    #[test]
    fn containers_identify_the_cgroups_of_a_pod() {
        let mut owners = NodeOwners::new(PathIndex::new("/nowhere", None));
        owners.refresh(&snapshot(), Instant::now());
        let Owner::Container { container, pod } = owners.owner(11) else { panic!("no container") };
        assert_eq!([10, 12].map(|inode| owners.owner(inode)), [Owner::Pod(pod); 2]);
        assert_eq!([1, 13, 20, 99].map(|inode| owners.owner(inode)), [Owner::Unknown; 4]);
        let [(identity, id)] = owners.rows() else { panic!("{:?}", owners.rows()) };
        assert_eq!((&*identity.container, *id), ("app", container));
        assert_eq!(&*owners.identity(pod).unwrap().labels, r#"namespace="shop",pod="cart""#);
    }

    #[test]
    fn other_cgroups_are_identified_by_path() {
        let mount = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            std::fs::create_dir_all(mount.path().join(path)).unwrap();
            cgroupfs::inode(&mount.path().join(path)).unwrap()
        };
        let (service, nested, stranger) = (
            make("system.slice/a.service"),
            make("kubepods/pod1/a/init.scope"),
            make("kubepods/pod9/x"),
        );
        let mut owners = NodeOwners::new(PathIndex::new(mount.path(), None));
        owners.refresh(&snapshot(), Instant::now());
        assert_eq!(owners.owner(service), Owner::System);
        assert_eq!(owners.owner(nested), owners.owner(11));
        assert_eq!(owners.owner(stranger), Owner::Unknown);
    }

    #[test]
    fn owners_outlive_their_cgroups_and_ids_are_not_reused() {
        let mut owners = NodeOwners::new(PathIndex::new("/nowhere", None));
        owners.refresh(&snapshot(), Instant::now());
        let Owner::Container { container, pod } = owners.owner(11) else { panic!("no container") };
        // The container's cgroup is gone; its series stays with its pod.
        owners.refresh(&NodeSnapshot { cgroups: Vec::new(), ..snapshot() }, Instant::now());
        assert_eq!(owners.owner(11), Owner::Container { container, pod });
        assert!(owners.has_container(container) && owners.has_pod(pod));
        for _ in 0..=KEPT_POLLS {
            owners.refresh(&NodeSnapshot::default(), Instant::now());
        }
        assert_eq!(owners.owner(11), Owner::Unknown);
        assert!(!owners.has_container(container) && !owners.has_pod(pod));
        owners.refresh(&snapshot(), Instant::now());
        assert_ne!(owners.owner(11), Owner::Container { container, pod });
    }

    #[test]
    fn what_leaves_after_many_polls_without_a_change_is_kept_as_long() {
        let mut owners = NodeOwners::new(PathIndex::new("/nowhere", None));
        let with_all = snapshot();
        (0..50).for_each(|_| owners.refresh(&with_all, Instant::now()));
        let (owner, polls) = (owners.owner(11), owners.poll);
        owners.refresh(&with_all, Instant::now());
        assert_eq!(owners.poll, polls, "nothing has changed");
        assert!(!owners.any_gone());
        let Owner::Container { pod, .. } = owner else { panic!("no container") };
        let empty = NodeSnapshot::default();
        let kept: Vec<_> = (0..50)
            .map(|_| {
                owners.refresh(&empty, Instant::now());
                (owners.owner(11) == owner, owners.name(pod).is_some(), owners.any_gone())
            })
            .collect();
        let count = |of: fn(&(bool, bool, bool)) -> bool| kept.iter().filter(|k| of(k)).count();
        let expected = KEPT_POLLS as usize;
        assert_eq!((count(|kept| kept.0), count(|kept| kept.1)), (expected, expected + 1));
        assert_eq!(count(|kept| kept.2), expected + 2);
        // The other role of a cgroup is a change, too.
        owners.refresh(&with_all, Instant::now());
        (0..50).for_each(|_| owners.refresh(&with_all, Instant::now()));
        let mut other = with_all.clone();
        other.cgroups[4].kind = CgroupKind::Sandbox;
        owners.refresh(&other, Instant::now());
        assert!(matches!(owners.owner(13), Owner::Pod(_)));
    }
}
