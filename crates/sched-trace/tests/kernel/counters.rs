//! The counters of all cgroups by one call, against each cgroup's `cpu.stat` and, on cgroup v1,
//! `cpuacct.usage`.

use std::path::Path;

use kernel_text::{Bandwidth, CgroupVersion, CpuStat, Quota, parse_u64};
use sched_trace::{CollectError, GroupCounters, KernelTypes};
use testkit::{Cgroup, OwnedCgroup, READY, Running, load, try_hierarchy};

const CONTAINERS: usize = 6;
/// Maximum number of rounds until each counter that is waited for has moved.
const ROUNDS: usize = 200_000;

/// Pods below one top cgroup, all with small quotas. In every other container a process spins.
struct Node {
    counters: GroupCounters,
    containers: Vec<Cgroup>,
    spinners: Vec<Running>,
    top: OwnedCgroup,
}

impl Node {
    fn new(name: &str) -> Self {
        let version = try_hierarchy().unwrap().version;
        let sys_root = Path::new("/sys");
        let types = KernelTypes::read(sys_root).unwrap();
        let counters = GroupCounters::load(sys_root, &types, version).unwrap();
        let top = OwnedCgroup::create(format!("cpuwarden-counters-{name}-{}", std::process::id()));
        top.set_highest_weight();
        let pods = top.child("pods");
        let containers: Vec<Cgroup> = (0..CONTAINERS)
            .map(|number| {
                let pod = pods.child(&format!("pod{number}"));
                pod.set_quota_usec(4_000, 20_000);
                let container = pod.child("container");
                container.set_quota_usec(2_000, 20_000);
                container
            })
            .collect();
        let spinners = containers.iter().step_by(2).map(spin).collect();
        Self { counters, containers, spinners, top }
    }

    /// All counters, and before and after them the files.
    fn read(&mut self) -> Vec<[CpuStat; 3]> {
        // As the agent does: one read of an ancestor on v2, whose counters are those of the last
        // flush.
        let before: Vec<_> = self.containers.iter().map(file).collect();
        let _ = file(&self.top.existing_child("pods"));
        self.counters.collect(None).unwrap();
        assert_eq!(self.counters.collect_usage(None).is_some(), is_v1());
        let collected: Vec<_> =
            self.containers.iter().map(|cgroup| collected(&mut self.counters, cgroup)).collect();
        let after = self.containers.iter().map(file);
        let of = before.into_iter().zip(collected).zip(after);
        of.map(|((before, collected), after)| [before, collected, after]).collect()
    }

    /// Reads until the condition holds for the counters; each counter lies between the files'.
    fn read_until(
        &mut self,
        what: &str,
        mut each_round: impl FnMut(&mut Self),
        holds: impl Fn(&[[CpuStat; 3]]) -> bool,
    ) {
        for _ in 0..ROUNDS {
            each_round(self);
            let read = self.read();
            read.iter().for_each(assert_between);
            if holds(&read) {
                return;
            }
        }
        panic!("{what}: not within {ROUNDS} rounds");
    }
}

fn spin(container: &Cgroup) -> Running {
    let mut command = container.command("sh");
    command.args(["-c", &format!("echo '{READY}'; {}", load::SPIN_IN_SHELL)]);
    Running::start(command, |line| line == READY).0
}

fn is_v1() -> bool {
    try_hierarchy().unwrap().version == CgroupVersion::V1
}

/// The collected counters, of which the usage is that of cpuacct on cgroup v1.
fn collected(counters: &mut GroupCounters, cgroup: &Cgroup) -> CpuStat {
    let (stat, _) = counters.get(cgroup.inode()).unwrap();
    if !is_v1() {
        return stat;
    }
    let usage_ns = counters.usage_ns(cgroupfs::inode(&cgroup.dir("cpuacct")).unwrap());
    assert!(usage_ns.is_some(), "no usage of {cgroup:?}");
    CpuStat { usage_ns, ..stat }
}

fn file(cgroup: &Cgroup) -> CpuStat {
    let stat = CpuStat::parse(cgroup.read("cpu", "cpu.stat").as_bytes()).unwrap();
    if !is_v1() {
        return stat;
    }
    let usage = cgroup.read("cpuacct", "cpuacct.usage");
    CpuStat { usage_ns: parse_u64("cpuacct.usage", usage.as_bytes()).ok(), ..stat }
}

/// The counters of both files and of the program, in one order.
fn fields(stat: &CpuStat) -> [Option<u64>; 6] {
    let CpuStat { usage_ns, nr_periods, nr_throttled, throttled_ns, nr_bursts, burst_ns, .. } =
        *stat;
    [usage_ns, nr_periods, nr_throttled, throttled_ns, nr_bursts, burst_ns]
}

fn assert_between(read: &[CpuStat; 3]) {
    let [before, collected, after] = read;
    let bounds = fields(before).into_iter().zip(fields(after));
    for (value, (before, after)) in fields(collected).into_iter().zip(bounds) {
        assert!(before <= value && value <= after, "{read:#?}");
    }
    let parts = collected.user_ns.zip(collected.system_ns).map(|(user, system)| user + system);
    assert!(parts <= collected.usage_ns, "{read:#?}");
}

/// Whether every container with a process has been throttled this often.
fn are_throttled(read: &[[CpuStat; 3]], periods: u64) -> bool {
    read.iter().step_by(2).all(|[_, collected, _]| {
        collected.nr_throttled >= Some(periods) && collected.throttled_ns > Some(0)
    })
}

#[test]
fn kernel_counters_lie_between_the_files_under_throttling_churn_and_moves() {
    let mut node = Node::new("churn");
    let churned = node.top.child("churned");
    let mut round = 0;
    let churn = |node: &mut Node| {
        round += 1;
        let new = churned.child(&format!("{round}"));
        let pid = node.spinners[0].pid();
        new.add_process(pid);
        node.containers[2 * (round % 2)].add_process(pid);
        new.remove();
    };
    node.read_until("throttled", churn, |read| are_throttled(&read[2..], 5));
}

#[test]
fn kernel_counters_equal_the_files_once_nothing_runs() {
    let mut node = Node::new("equal");
    node.read_until("throttled", |_| {}, |read| are_throttled(read, 5));
    node.spinners.clear();
    // The last period of a quota ends after its last task.
    let are_equal = |read: &[[CpuStat; 3]]| {
        read.iter().all(|[before, collected, after]| before == after && collected == after)
    };
    node.read_until("equal", |_| {}, are_equal);
}

/// What the files of the quota say.
fn bandwidth_of_files(cgroup: &Cgroup) -> Bandwidth {
    if !is_v1() {
        return Bandwidth::parse_v2(cgroup.read("cpu", "cpu.max").as_bytes()).unwrap();
    }
    let read = |name| cgroup.read("cpu", name);
    let period_usec = parse_u64("period", read("cpu.cfs_period_us").as_bytes()).unwrap();
    let quota = Quota::parse_v1(read("cpu.cfs_quota_us").as_bytes()).unwrap();
    Bandwidth { quota, period_usec }
}

#[test]
fn kernel_quotas_are_those_of_the_files() {
    let mut node = Node::new("quotas");
    let container = node.containers[1].clone();
    let unlimited = node.top.child("unlimited");
    for (quota_usec, period_usec) in [(2_000, 20_000), (1_234, 56_789), (3_000, 100_000)] {
        container.set_quota_usec(quota_usec, period_usec);
        node.counters.collect(None).unwrap();
        let mut collected = |cgroup: &Cgroup| node.counters.get(cgroup.inode()).unwrap().1;
        assert_eq!(
            collected(&container),
            Bandwidth { quota: Quota::Usec(quota_usec), period_usec }
        );
        for cgroup in [&container, &unlimited] {
            assert_eq!(collected(cgroup), bandwidth_of_files(cgroup));
        }
        assert_eq!(collected(&unlimited).quota, Quota::Max);
    }
}

#[test]
fn kernel_a_new_cgroup_has_counters_from_the_next_collection_on() {
    let mut node = Node::new("new");
    node.counters.collect(None).unwrap();
    let new = node.top.child("new");
    assert_eq!(node.counters.get(new.inode()), None, "it was not collected");
    node.counters.collect(None).unwrap();
    node.counters.collect_usage(None);
    assert_eq!(fields(&collected(&mut node.counters, &new)), fields(&file(&new)));
}

/// As below a container that may create cgroups (KEP-5474).
#[test]
fn kernel_cgroups_below_a_container_get_no_record() {
    with_children(100);
}

/// More than the table has records. An emulated kernel takes two minutes for it.
#[test]
fn ten_thousand_cgroups_below_a_container_get_no_record() {
    let mut node = with_children(10_000);
    let all = node.counters.collect(None);
    assert!(matches!(all, Err(CollectError::TooMany)), "{all:?}");
}

/// Collects without and with this number of cgroups below a container.
fn with_children(children: usize) -> Node {
    let mut node = Node::new(&format!("nested{children}"));
    let container = node.containers[1].clone();
    let levels = Some(container.path().components().count().try_into().unwrap());
    let before = (node.counters.collect(levels).unwrap(), node.counters.collect_usage(levels));
    container.create_many(children);
    let after = (node.counters.collect(levels).unwrap(), node.counters.collect_usage(levels));
    // Other tests create cgroups at the same time.
    assert!(after.0 < before.0 + 1000, "{before:?}, {after:?}");
    assert!(after.1.unwrap_or(0) < before.1.unwrap_or(0) + 1000, "{before:?}, {after:?}");
    let nested = cgroupfs::inode(&container.dir("cpu").join("0")).unwrap();
    assert_eq!(node.counters.get(nested), None);
    assert_eq!(fields(&collected(&mut node.counters, &container)), fields(&file(&container)));
    node
}
