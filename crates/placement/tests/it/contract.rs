//! The table of the allocator's contract, on a machine of 2 sockets × 2 cores × 2 threads, cores
//! 0-1, 2-3 | 4-5, 6-7; and the contract for cores that differ.

use kernel_text::CpuSet;
use placement::{
    Bind, BindPolicy, Cpu, ExclusivePolicy, Exclusivity, Grid, Hold, NumaStrategy, Numbering,
    Request, TakeError, Taken, Topology, take,
};

const FULL: BindPolicy = BindPolicy::FullPcpus;
const SPREAD: BindPolicy = BindPolicy::SpreadByPcpus;
const MOST: NumaStrategy = NumaStrategy::MostAllocated;
const LEAST: NumaStrategy = NumaStrategy::LeastAllocated;
const EVENLY: NumaStrategy = NumaStrategy::DistributeEvenly;
const PCPU: ExclusivePolicy = ExclusivePolicy::PcpuLevel;
const NUMA: ExclusivePolicy = ExclusivePolicy::NumaNodeLevel;

fn the_box() -> Topology {
    let numbering = Numbering::Sequential;
    Grid { sockets: 2, nodes_per_socket: 1, cores_per_node: 2, threads_per_core: 2, numbering }
        .topology()
}

fn preferred(policy: BindPolicy, cpus: usize, strategy: NumaStrategy) -> Request {
    Request { cpus, bind: Bind { policy, required: false }, strategy, ..Request::default() }
}

fn required(policy: BindPolicy, cpus: usize) -> Request {
    Request { bind: Bind { policy, required: true }, ..preferred(policy, cpus, MOST) }
}

fn apart(policy: ExclusivePolicy, required: bool, request: Request) -> Request {
    Request { exclusive: Exclusivity { policy, required }, ..request }
}

fn held(cpus: &str, policy: ExclusivePolicy, required: bool) -> Taken {
    Taken::from_iter([Hold {
        cpus: cpus.parse().expect("a CPU list"),
        exclusive: Exclusivity { policy, required },
    }])
}

fn plain(cpus: &str) -> Taken {
    held(cpus, ExclusivePolicy::None, false)
}

fn answer(topology: &Topology, taken: &Taken, request: &Request) -> String {
    take(topology, taken, request)
        .map_or_else(|error| format!("error: {error}"), |cpus| cpus.to_string())
}

fn on_the_box(taken: &Taken, request: &Request) -> String {
    answer(&the_box(), taken, request)
}

#[test]
fn full_takes_whole_cores_of_one_node_first() {
    for (cpus, expected) in [(2, "0-1"), (4, "0-3"), (6, "0-5")] {
        assert_eq!(on_the_box(&plain(""), &preferred(FULL, cpus, MOST)), expected);
    }
    assert_eq!(on_the_box(&plain("0-1"), &preferred(FULL, 2, MOST)), "2-3");
    assert_eq!(on_the_box(&plain("0-1"), &preferred(FULL, 2, LEAST)), "4-5");
    assert_eq!(on_the_box(&plain("0"), &preferred(FULL, 4, MOST)), "4-7");
    assert_eq!(on_the_box(&plain("0"), &preferred(FULL, 6, MOST)), "2-7");
}

#[test]
fn a_preferred_policy_degrades_and_a_required_one_fails() {
    assert_eq!(on_the_box(&plain("0,2,4,6"), &preferred(FULL, 2, MOST)), "1,3");
    assert_eq!(
        on_the_box(&plain("0,2,4,6"), &required(FULL, 2)),
        "error: 2 CPUs requested with required FullPCPUs, 0 free for that policy"
    );
    assert_eq!(on_the_box(&plain(""), &preferred(SPREAD, 5, MOST)), "0-2,4,6");
    assert_eq!(
        on_the_box(&plain(""), &required(SPREAD, 5)),
        "error: 5 CPUs requested with required SpreadByPCPUs, 4 free for that policy"
    );
    assert_eq!(
        on_the_box(&plain("0-6"), &preferred(FULL, 2, MOST)),
        "error: 2 CPUs requested, 1 free"
    );
}

#[test]
fn spread_takes_a_cpu_of_each_core_within_the_bound_of_a_node() {
    assert_eq!(on_the_box(&plain(""), &preferred(SPREAD, 2, MOST)), "0,2");
    assert_eq!(on_the_box(&plain(""), &preferred(SPREAD, 4, MOST)), "0-3");
    assert_eq!(on_the_box(&plain(""), &required(SPREAD, 4)), "0,2,4,6");
    assert_eq!(on_the_box(&plain("0"), &preferred(SPREAD, 2, MOST)), "1-2");
    assert_eq!(on_the_box(&plain("0"), &preferred(SPREAD, 2, LEAST)), "4,6");
}

#[test]
fn exclusive_policies_keep_away_from_pods_of_the_same_policy() {
    let spread = preferred(SPREAD, 2, MOST);
    assert_eq!(on_the_box(&held("0,2", PCPU, false), &apart(PCPU, false, spread.clone())), "4,6");
    assert_eq!(
        on_the_box(&held("0,2,4,6", PCPU, false), &apart(PCPU, false, spread.clone())),
        "1,3"
    );
    assert_eq!(
        on_the_box(&held("0-1", NUMA, false), &apart(NUMA, false, preferred(FULL, 2, MOST))),
        "4-5"
    );
    assert_eq!(on_the_box(&held("0-1", NUMA, false), &preferred(FULL, 2, MOST)), "2-3");
}

#[test]
fn required_exclusivity_never_degrades() {
    let spread = apart(PCPU, true, preferred(SPREAD, 2, MOST));
    assert_eq!(
        on_the_box(&held("0,2,4,6", PCPU, false), &spread),
        "error: 2 CPUs requested with required PCPULevel, 0 free on cores without other pods"
    );
    assert_eq!(on_the_box(&held("0,4", ExclusivePolicy::None, false), &spread), "2-3");
    assert_eq!(on_the_box(&held("0,2", PCPU, true), &preferred(SPREAD, 2, MOST)), "4,6");
    assert_eq!(
        on_the_box(&held("0", NUMA, true), &preferred(FULL, 6, MOST)),
        "error: 6 CPUs requested, 4 free"
    );
}

#[test]
fn distribute_evenly_splits_over_the_nodes() {
    assert_eq!(on_the_box(&plain(""), &preferred(FULL, 4, EVENLY)), "0-1,4-5");
    assert_eq!(on_the_box(&plain(""), &preferred(SPREAD, 2, EVENLY)), "0,4");
    assert_eq!(on_the_box(&plain(""), &preferred(SPREAD, 3, EVENLY)), "0,4,6");
    let full = Request { strategy: EVENLY, ..required(FULL, 6) };
    assert_eq!(on_the_box(&plain(""), &full), "0-1,4-7");
    let apart = apart(NUMA, false, preferred(SPREAD, 2, EVENLY));
    assert_eq!(on_the_box(&held("0", NUMA, false), &apart), "4,6");
}

/// Two performance cores of two threads, three efficiency cores of one.
fn hybrid() -> Topology {
    let cpu = |id, core| Cpu { id, core, l3: None, die: None, node: 0, socket: 0, kind: None };
    Topology::new(vec![cpu(0, 0), cpu(1, 0), cpu(2, 1), cpu(3, 1), cpu(4, 2), cpu(5, 3), cpu(6, 4)])
        .expect("regular cores")
}

#[test]
fn cores_of_one_thread_complete_whole_cores_of_two() {
    for request in [preferred(FULL, 3, MOST), required(FULL, 3)] {
        assert_eq!(answer(&hybrid(), &plain(""), &request), "0-1,4");
    }
    assert_eq!(answer(&hybrid(), &plain("4-6"), &preferred(FULL, 3, MOST)), "0-2");
    assert!(matches!(
        take(&hybrid(), &plain("4-6"), &required(FULL, 3)),
        Err(TakeError::Bind { wanted: 3, free: 4, .. })
    ));
    assert_eq!(answer(&hybrid(), &plain(""), &required(SPREAD, 5)), "0,2,4-6");
}

/// Cores of four threads, some of them offline: 0-3, 4-6, 8-10 on one socket, 12-14 on the other.
fn uneven() -> Topology {
    let cpu = |id| Cpu {
        id,
        core: id / 4,
        l3: None,
        die: None,
        node: id / 12,
        socket: id / 12,
        kind: None,
    };
    Topology::new([0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14].map(cpu).to_vec())
        .expect("regular cores")
}

#[test]
fn whole_cores_are_found_within_a_node_and_across_sockets() {
    assert_eq!(answer(&uneven(), &plain(""), &required(FULL, 3)), "12-14");
    assert_eq!(answer(&uneven(), &plain(""), &required(FULL, 6)), "4-6,8-10");
    assert_eq!(answer(&uneven(), &plain(""), &required(FULL, 9)), "4-6,8-10,12-14");
    assert_eq!(answer(&uneven(), &plain("8"), &required(FULL, 3)), "12-14");
    assert!(answer(&uneven(), &plain(""), &required(FULL, 5)).starts_with("error"));
}

#[test]
fn only_allowed_cpus_are_given() {
    let allowed: CpuSet = "1-7".parse().unwrap();
    let request = |cpus| Request { allowed: Some(allowed.clone()), ..required(FULL, cpus) };
    assert_eq!(on_the_box(&plain(""), &request(2)), "2-3");
    assert!(on_the_box(&plain(""), &request(8)).starts_with("error: 8 CPUs requested, 7 free"));
}
