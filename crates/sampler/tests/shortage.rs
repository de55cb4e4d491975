//! After a shortage of descriptors or inotify, the next reconcile watches and reads everything
//! again.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::Node;

/// Longer than the interval between reconciles.
const RECONCILE: Duration = Duration::from_secs(1_000_001);

/// The limit of open files applies to the process: run one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

/// A lowered limit of open files; restored on drop.
struct Shortage {
    before: Rlimit,
}

impl Shortage {
    /// Allows only `left` more open files.
    fn of(left: u64) -> Self {
        let before = getrlimit(Resource::Nofile);
        // The lowest free number is the next one to be used.
        let lowest = File::open("/dev/null").unwrap().as_raw_fd();
        let current = Some(u64::try_from(lowest).unwrap() + left);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        Self { before }
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

/// Kernel files that this process holds open below the node's directory.
fn kept(node: &Node) -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|target| target.starts_with(node.root())).count()
}

/// The same once every container runs: the files of idle ones are closed.
fn kept_while_running(node: &mut Node) -> usize {
    for _ in 0..2 {
        (0..4).for_each(|number| node.run(number));
        node.tick();
    }
    kept(node)
}

fn rows(node: &Node) -> String {
    let latest = node.latest();
    let row = |row: &snapshot::ContainerRow| {
        let memory = (row.memory_working_set_bytes, &row.numa_memory, row.pressure_waiting_ns);
        format!("{:?} {memory:?} {:?}", row.throttled_ancestor_ns, row.cpu_limit)
    };
    latest.containers.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// User time, nanoseconds, and periods of each container.
fn counters(node: &Node) -> Vec<(u64, u64)> {
    let latest = node.latest();
    let row = |row: &snapshot::ContainerRow| (row.user_ns.unwrap(), row.cfs.unwrap().periods);
    latest.containers.iter().map(row).collect()
}

/// The reason why the feature is not in use; empty if it is.
fn lack(node: &Node, feature: &str) -> String {
    let latest = node.latest();
    let state = latest.node.features.iter().find(|state| state.feature == feature);
    state.unwrap().reason.clone()
}

/// Two ticks with this many descriptors, a run of the second container, and the tick of a
/// reconcile.
fn after_a_reconcile(descriptors: u64) -> (String, Node) {
    let mut node = Node::new(2);
    let shortage = Shortage::of(descriptors);
    node.tick();
    drop(shortage);
    node.run_unseen(1);
    let shortage = Shortage::of(if descriptors < 100 { 0 } else { descriptors });
    node.tick();
    drop(shortage);
    node.tick_late(RECONCILE);
    (rows(&node), node)
}

#[test]
fn after_a_descriptor_shortage_nothing_is_counted_twice() {
    let _turn = LIMIT.lock();
    let (plenty, mut node) = after_a_reconcile(1000);
    let all = kept_while_running(&mut node);
    assert!(all > 30, "{all} files are kept");
    for left in [1, 2, 3, 7, 20] {
        let (rows, mut node) = after_a_reconcile(left);
        assert_eq!(rows, plenty, "{left} descriptors");
        // The run counts if the first reading came before it.
        let before = counters(&node);
        let most = [(0, 0), (1_000_000, 1), (0, 0), (0, 0)];
        assert!(before == most || before == [(0, 0); 4], "{left} descriptors: {before:?}");
        node.run(1);
        node.tick();
        let (user_ns, periods) = before[1];
        assert_eq!(counters(&node)[1], (user_ns + 1_000_000, periods + 1), "{left} descriptors");
        assert_eq!(
            (kept_while_running(&mut node), lack(&node, "kept_descriptors")),
            (all, String::new()),
            "{left} descriptors"
        );
    }
}

#[test]
fn failed_watches_are_added_at_the_next_reconcile() {
    let _turn = LIMIT.lock();
    let mut node = Node::new(1);
    let events = node.container(0).join("cgroup.events");
    symlink("cgroup.events", &events).unwrap();
    node.tick();
    assert!(lack(&node, "inotify").contains("cgroup.events"), "{}", lack(&node, "inotify"));
    fs::remove_file(&events).unwrap();
    fs::write(&events, "populated 1\n").unwrap();
    node.tick();
    assert_ne!(lack(&node, "inotify"), "", "only a reconcile tries again");
    node.tick_late(RECONCILE);
    assert_eq!(lack(&node, "inotify"), "");
}

#[test]
fn a_missing_inotify_instance_is_created_at_the_next_reconcile() {
    let _turn = LIMIT.lock();
    let root = Node::make_root(1);
    // The sampler's epoll instance, and the eventfd and epoll instance of its subscription to the
    // tree take the only descriptors.
    let shortage = Shortage::of(3);
    let mut node = Node::on(root);
    drop(shortage);
    let inotify = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        links
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .any(|to| to.ends_with("anon_inode:inotify"))
    };
    assert!(!inotify());
    node.tick();
    assert!(inotify());
    assert_eq!(lack(&node, "inotify"), "");
    assert!(node.latest().node.steal_ns.is_some(), "/proc/stat");
    // Writes are reported, and so is a new container.
    (0..30).for_each(|_| node.tick());
    fs::write(node.container(0).join("cpu.max"), "10000 100000\n").unwrap();
    fs::create_dir(node.container(0).with_file_name(format!("{:064x}", 9))).unwrap();
    node.tick();
    assert_eq!(node.latest().containers[0].cpu_limit.cores(), Some(0.1));
    assert_eq!(node.latest().containers.len(), 3);
}
