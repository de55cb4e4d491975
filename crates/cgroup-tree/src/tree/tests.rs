//! The tree on directories of a temporary file system, compared with a listing of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::{Role, Slots};

const HOUR: Duration = Duration::from_secs(3600);

/// A subscriber with its own copy of the tree, built from the changes alone.
struct Mirror {
    subscription: Subscription,
    interests: Interests,
    cgroups: Slots<Arc<TreeCgroup>>,
    /// All ids that were ever added.
    used: BTreeSet<CgroupId>,
    /// Cgroups to whose settings somebody wrote.
    written: BTreeSet<CgroupId>,
    /// Cgroups to whose cpuset somebody wrote.
    cpus_written: BTreeSet<CgroupId>,
}

impl Mirror {
    fn new(tree: &Arc<KubepodsTree>, interests: Interests) -> Self {
        let subscription = tree.subscribe(interests).unwrap();
        let [used, written, cpus_written] = [(); 3].map(|()| BTreeSet::new());
        let cgroups = Slots::default();
        Self { subscription, interests, cgroups, used, written, cpus_written }
    }

    fn reports_settings(&self) -> bool {
        self.interests != Interests::CPUSETS
    }

    fn reports_cpus(&self) -> bool {
        self.interests != Interests::COUNTERS
    }

    fn poll(&mut self) {
        let mut changes = Vec::new();
        self.subscription.poll(Instant::now(), &mut changes);
        self.follow(changes);
    }

    fn reconcile(&mut self) {
        let mut changes = Vec::new();
        self.subscription.reconcile(Instant::now(), HOUR, &mut changes);
        self.follow(changes);
    }

    fn follow(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Added(cgroup) => {
                    assert!(self.used.insert(cgroup.id), "{cgroup:?} has a used id");
                    assert!(cgroup.parent.is_none_or(|parent| self.cgroups.contains(parent)));
                    let old = self.cgroups.insert(cgroup.id, cgroup);
                    assert_eq!(old, None, "its slot was in use");
                }
                Change::Removed(id) => {
                    assert!(self.cgroups.remove(id).is_some(), "{id:?} was never added");
                    assert!(self.cgroups.iter().all(|(_, cgroup)| cgroup.parent != Some(id)));
                }
                other => {
                    assert!(self.cgroups.contains(other.id()), "{other:?}");
                    match other {
                        Change::SettingsWritten(id) => {
                            assert!(self.reports_settings());
                            self.written.insert(id);
                        }
                        Change::CpusWritten(id) => {
                            assert!(self.reports_cpus());
                            self.cpus_written.insert(id);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Inodes by path, without the cgroups above the roots.
    fn seen(&self) -> BTreeMap<String, u64> {
        let all = self.cgroups.iter().map(|(_, cgroup)| cgroup);
        all.filter(|cgroup| cgroup.role != Role::Above)
            .map(|cgroup| (cgroup.path.to_string(), cgroup.inode))
            .collect()
    }

    fn ids(&self) -> BTreeSet<CgroupId> {
        self.cgroups.iter().map(|(id, _)| id).collect()
    }

    fn is_woken(&self) -> bool {
        let mut polled = [PollFd::new(&self.subscription, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).unwrap() > 0
    }
}

/// One hierarchy with its tree and three subscribers.
struct Hierarchy {
    mount: PathBuf,
    /// Removed directories, kept so that no inode is used again, as in cgroupfs.
    graveyard: PathBuf,
    removed: usize,
    tree: Arc<KubepodsTree>,
    prompt: Mirror,
    /// Polls whenever the prompt one has.
    second: Mirror,
    /// Polls rarely, like a thread that hangs.
    late: Mirror,
}

impl Hierarchy {
    fn new(directory: &Path, version: CgroupVersion, options: TreeOptions) -> Self {
        Self::with_interests(directory, version, options, [Interests::ALL; 3])
    }

    /// `interests`: of the prompt subscriber, the second and the late one.
    fn with_interests(
        directory: &Path,
        version: CgroupVersion,
        options: TreeOptions,
        interests: [Interests; 3],
    ) -> Self {
        let (mount, graveyard) = (directory.join("mount"), directory.join("removed"));
        fs::create_dir_all(&mount).unwrap();
        fs::create_dir_all(&graveyard).unwrap();
        let tree = KubepodsTree::new(mount.clone(), version, options);
        let [prompt, second, late] = interests.map(|of| Mirror::new(&tree, of));
        Self { mount, graveyard, removed: 0, tree, prompt, second, late }
    }

    fn make(&self, path: &str) {
        fs::create_dir_all(self.mount.join(path)).unwrap();
    }

    /// The cgroup of the tree at this path, found by its inode.
    fn at(&self, path: &str) -> Arc<TreeCgroup> {
        let inode = cgroupfs::inode(&self.mount.join(path)).unwrap();
        self.tree.by_inode(inode).unwrap()
    }

    fn remove(&mut self, path: &str) {
        self.removed += 1;
        let grave = self.graveyard.join(self.removed.to_string());
        let _ = fs::rename(self.mount.join(path), grave);
    }

    /// Writes to the quota and the cpuset of a cgroup, if it exists.
    fn write(&self, path: &str) {
        for (file, text) in [("cpu.cfs_quota_us", "-1"), ("cpuset.cpus", "0-3")] {
            let _ = fs::write(self.mount.join(path).join(file), text);
        }
    }

    /// Loses the pending events, as the kernel does when its queue is full.
    fn overflow(&self) {
        self.tree.lock().lose_events();
    }

    /// The expected content of the tree, read from the directories.
    fn expected(&self) -> BTreeMap<String, u64> {
        let listed = PATHS.iter().filter_map(|path| {
            let inode = cgroupfs::inode(&self.mount.join(path)).ok()?;
            Some(((*path).to_owned(), inode))
        });
        listed.filter(|(path, _)| !path.contains("/init.scope")).collect()
    }

    /// Fails unless every subscriber knows the cgroups of the tree or will be woken.
    fn check_followed(&self) {
        let all: BTreeSet<CgroupId> = self.tree.by_depth().iter().map(|cgroup| cgroup.id).collect();
        for mirror in [&self.prompt, &self.second, &self.late] {
            assert!(mirror.ids() == all || mirror.is_woken(), "a change is not signaled");
        }
    }

    /// Fails unless the second subscriber learns what the prompt one has learned.
    fn check_same_tick(&mut self) {
        self.second.poll();
        assert_eq!(self.second.ids(), self.prompt.ids());
        if self.second.reports_settings() && self.prompt.reports_settings() {
            assert_eq!(self.second.written, self.prompt.written);
        }
        if self.second.reports_cpus() && self.prompt.reports_cpus() {
            assert_eq!(self.second.cpus_written, self.prompt.cpus_written);
        }
    }

    /// Fails unless a write to any cgroup is reported to all that are interested in it.
    fn check_all_watched(&mut self) {
        for mirror in [&mut self.prompt, &mut self.second, &mut self.late] {
            mirror.poll();
            mirror.written.clear();
            mirror.cpus_written.clear();
        }
        self.expected().keys().for_each(|path| self.write(path));
        for mirror in [&mut self.prompt, &mut self.second, &mut self.late] {
            mirror.poll();
            let cgroups = mirror.cgroups.iter().map(|(_, cgroup)| cgroup);
            let below = cgroups.filter(|cgroup| cgroup.role != Role::Above);
            let below: BTreeSet<CgroupId> = below.map(|cgroup| cgroup.id).collect();
            let expected = |reports: bool| if reports { below.clone() } else { BTreeSet::new() };
            assert_eq!(mirror.written, expected(mirror.reports_settings()));
            assert_eq!(mirror.cpus_written, expected(mirror.reports_cpus()));
        }
    }
}

const POD: &str = "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001";
const CONTAINER: &str = "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001/\
                         0000000000000000000000000000000000000000000000000000000000000001";

/// All directories that the test creates.
const PATHS: &[&str] = &[
    "kubepods",
    "kubepods/burstable",
    "kubepods/besteffort",
    POD,
    CONTAINER,
    "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001/kata_1",
    "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001/\
     0000000000000000000000000000000000000000000000000000000000000001/init.scope",
    "kubepods/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0002",
    "kubepods/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0002/\
     0000000000000000000000000000000000000000000000000000000000000002",
];

/// Step on one of two hierarchies, as of a v1 node. A runtime creates a cgroup in one hierarchy
/// after the other, so each step concerns one of them.
#[derive(Debug, Clone)]
enum Step {
    Make(usize),
    Remove(usize),
    /// Removes the directory and creates it again at once.
    Replace(usize),
    /// Writes to its quota and its cpuset.
    Write(usize),
    Overflow,
    /// The prompt subscriber applies the events.
    Poll,
    /// The prompt subscriber applies the events, and walks the tree if events were lost.
    Tick,
    /// The late subscriber applies the events.
    PollLate,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let path = || 0..PATHS.len();
    let step = prop_oneof![
        6 => path().prop_map(Step::Make),
        3 => path().prop_map(Step::Remove),
        2 => path().prop_map(Step::Replace),
        2 => path().prop_map(Step::Write),
        1 => Just(Step::Overflow),
        4 => Just(Step::Poll),
        2 => Just(Step::Tick),
        1 => Just(Step::PollLate),
    ];
    (0_usize..2, step)
}

fn apply(hierarchy: &mut Hierarchy, step: &Step) {
    match step {
        Step::Make(path) => hierarchy.make(PATHS[*path]),
        Step::Remove(path) => hierarchy.remove(PATHS[*path]),
        Step::Replace(path) => {
            hierarchy.remove(PATHS[*path]);
            hierarchy.make(PATHS[*path]);
        }
        Step::Write(path) => hierarchy.write(PATHS[*path]),
        Step::Overflow => hierarchy.overflow(),
        Step::Poll => hierarchy.prompt.poll(),
        Step::Tick => hierarchy.prompt.reconcile(),
        Step::PollLate => hierarchy.late.poll(),
    }
    if matches!(step, Step::Poll | Step::Tick) {
        hierarchy.check_same_tick();
    }
    hierarchy.check_followed();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_changes_lead_every_subscriber_to_the_cgroups_that_exist(
        steps in prop::collection::vec(step(), 1..60),
        version in prop::sample::select(vec![CgroupVersion::V1, CgroupVersion::V2]),
        interests in Just([Interests::COUNTERS, Interests::CPUSETS, Interests::ALL]).prop_shuffle(),
    ) {
        let root = tempfile::tempdir().unwrap();
        let mut hierarchies = ["cpu", "cpuset"].map(|name| {
            let options = TreeOptions::default();
            let directory = root.path().join(name);
            let mut hierarchy =
                Hierarchy::with_interests(&directory, version, options, interests);
            // The periodic walk is over: from now on only events, overflows and new roots count.
            hierarchy.make("kubepods");
            hierarchy.prompt.reconcile();
            hierarchy
        });
        for (number, step) in &steps {
            apply(&mut hierarchies[*number], step);
        }
        for hierarchy in &mut hierarchies {
            hierarchy.prompt.reconcile();
            let expected = hierarchy.expected();
            prop_assert_eq!(&hierarchy.prompt.seen(), &expected);
            // The late subscriber takes the same changes, and needs no walk for it.
            hierarchy.late.poll();
            prop_assert_eq!(&hierarchy.late.seen(), &expected);
            prop_assert_eq!(hierarchy.late.ids(), hierarchy.prompt.ids());
            prop_assert!(!hierarchy.late.is_woken() && !hierarchy.prompt.is_woken());
            hierarchy.check_all_watched();
        }
    }
}

#[test]
fn a_change_that_one_subscriber_applies_wakes_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, TreeOptions::default());
    node.make(POD);
    node.prompt.reconcile();
    node.late.poll();
    assert!(!node.late.is_woken() && !node.prompt.is_woken());
    node.make(CONTAINER);
    assert!(node.late.is_woken() && node.prompt.is_woken(), "both see the inotify event");
    node.prompt.poll();
    assert!(node.late.is_woken() && !node.prompt.is_woken());
    node.late.poll();
    assert!(node.late.seen().contains_key(CONTAINER));
    assert!(!node.late.is_woken());
}

#[test]
fn a_later_subscriber_gets_all_cgroups_under_the_same_ids() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, TreeOptions::default());
    node.make(CONTAINER);
    node.prompt.reconcile();
    let mut new = Mirror::new(&node.tree, Interests::ALL);
    new.poll();
    assert_eq!((new.ids(), new.seen()), (node.prompt.ids(), node.expected()));
    let key = new.subscription.key;
    drop(new);
    assert!(!node.tree.lock().has_subscriber(key));
}

#[test]
fn only_a_cgroup_whose_creation_was_reported_is_seen_created() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, TreeOptions::default());
    let numbered = |number: u32| format!("{POD}/{number:064x}");
    node.make(&numbered(1));
    node.prompt.reconcile();
    node.make(&numbered(2));
    node.prompt.poll();
    node.make(&numbered(3));
    node.overflow();
    node.prompt.reconcile();
    let seen = [1, 2, 3].map(|number| node.at(&numbered(number)).seen_created);
    assert_eq!(seen, [false, true, false], "it stood before, was reported, was found by a walk");
}

#[test]
fn a_root_that_appears_later_is_found_without_a_periodic_walk() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, TreeOptions::default());
    node.make("kubepods");
    node.prompt.reconcile();
    node.make("kubepods.slice/kubepods-burstable.slice");
    assert!(node.late.is_woken());
    node.late.reconcile();
    assert!(node.late.seen().contains_key("kubepods.slice/kubepods-burstable.slice"));
}

#[test]
fn roots_of_other_kubelets_are_included_on_request_and_marked() {
    for other_roots in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let options = TreeOptions { other_roots, ..TreeOptions::default() };
        let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, options);
        node.make("kubepods/burstable");
        node.make("docker/1/kubelet/kubepods/burstable");
        node.prompt.reconcile();
        let other: Vec<bool> = (node.tree.by_depth().iter())
            .filter(|cgroup| cgroup.path.starts_with("docker/1/kubelet/kubepods"))
            .map(|cgroup| cgroup.is_this_kubelets)
            .collect();
        assert_eq!(other, if other_roots { vec![false; 2] } else { Vec::new() });
        let own = node.at("kubepods/burstable");
        assert!(own.is_this_kubelets);
    }
}

#[test]
fn a_vanished_file_removes_the_cgroup_only_with_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, TreeOptions::default());
    node.make(&format!("{CONTAINER}/init.scope/a"));
    node.prompt.reconcile();
    let container = node.at(CONTAINER);
    assert_eq!(&*container.path, CONTAINER);
    // A file of a cgroup that still exists may vanish: its controller was disabled.
    let mut changes = Vec::new();
    assert!(node.prompt.subscription.report_vanished(container.id, &mut changes));
    assert_eq!(changes, []);
    node.remove(CONTAINER);
    assert!(!node.prompt.subscription.report_vanished(container.id, &mut changes));
    assert_eq!(changes, [Change::Removed(container.id)]);
}

#[test]
fn the_tree_recovers_from_a_thread_that_panics_with_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Hierarchy::new(directory.path(), CgroupVersion::V2, TreeOptions::default());
    node.make(CONTAINER);
    node.prompt.reconcile();
    let tree = Arc::clone(&node.tree);
    let panicked = std::thread::spawn(move || {
        let _state = tree.state.lock().unwrap();
        panic!("expected by the test");
    });
    assert!(panicked.join().is_err());
    assert!(!node.tree.is_watched());
    let before = node.prompt.ids();
    node.prompt.reconcile();
    assert_eq!(node.prompt.seen(), node.expected());
    assert!(node.prompt.ids().is_disjoint(&before), "an entry of the broken tables was kept");
    assert!(node.tree.is_watched());
    node.check_same_tick();
    node.remove(CONTAINER);
    node.prompt.poll();
    assert_eq!(node.prompt.seen(), node.expected());
}

/// As of a container that may create cgroups.
#[test]
fn ten_thousand_cgroups_below_a_container_wake_nobody() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let directory = tempfile::tempdir().unwrap();
        let mut hierarchy = Hierarchy::new(directory.path(), version, TreeOptions::default());
        hierarchy.make(CONTAINER);
        hierarchy.prompt.reconcile();
        hierarchy.second.poll();
        let before = hierarchy.prompt.seen();
        assert!(before.contains_key(CONTAINER));
        for number in 0..10_000 {
            hierarchy.make(&format!("{CONTAINER}/{number}"));
        }
        hierarchy.write(&format!("{CONTAINER}/1"));
        assert!(!hierarchy.prompt.is_woken(), "{version:?}");
        hierarchy.prompt.reconcile();
        assert_eq!(hierarchy.prompt.seen(), before, "{version:?}");
    }
}
