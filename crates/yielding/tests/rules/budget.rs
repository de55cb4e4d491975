//! koordlet's budget: the published cases, and properties over all inputs.

use kernel_text::CpuSet;
use placement::{Cpu, Grid, Numbering, Topology};
use proptest::prelude::*;
use serde::Deserialize;
use yielding::rules::{NodeUsage, budget_cores, grown_cpus, grown_quota_usec, keep_cpus};

#[derive(Deserialize)]
struct Picked {
    name: String,
    topology: Shape,
    request: usize,
    expected: String,
}

#[derive(Deserialize)]
struct Shape {
    sockets: u32,
    nodes_per_socket: u32,
    cores_per_node: u32,
    threads_per_core: u32,
    cpus: Option<Vec<(u32, u32, u32, u32)>>,
}

impl Shape {
    fn topology(&self) -> Topology {
        if let Some(cpus) = &self.cpus {
            let cpu = |&(id, core, node, socket): &(u32, u32, u32, u32)| Cpu {
                id,
                core,
                l3: None,
                die: None,
                node,
                socket,
                kind: None,
            };
            return Topology::new(cpus.iter().map(cpu).collect()).expect("a fixture's topology");
        }
        grid(self.sockets, self.nodes_per_socket, self.cores_per_node, self.threads_per_core)
    }
}

fn grid(sockets: u32, nodes_per_socket: u32, cores_per_node: u32, threads: u32) -> Topology {
    let numbering = Numbering::Sequential;
    let threads_per_core = threads;
    Grid { sockets, nodes_per_socket, cores_per_node, threads_per_core, numbering }.topology()
}

#[derive(Deserialize)]
struct Budget {
    name: String,
    capacity: f64,
    node: f64,
    pods: f64,
    best_effort: f64,
    reserved: f64,
    threshold_percent: f64,
    current_quota_usec: u64,
    expected_quota_usec: u64,
}

#[test]
fn published_vectors_of_the_cpus_are_answered() {
    let vectors: Vec<Picked> =
        serde_json::from_str(include_str!("fixtures/be-suppress.json")).unwrap();
    assert_eq!(vectors.len(), 2);
    for vector in vectors {
        let topology = vector.topology.topology();
        let pool: CpuSet = (0..8).collect();
        // A budget just below the request is rounded up to it.
        let cpus = grown_cpus(vector.request as f64 - 0.5, 8, 8, 2);
        let kept = keep_cpus(&topology, &pool, &CpuSet::default(), &CpuSet::default(), cpus);
        assert_eq!(kept.to_string(), vector.expected, "{}", vector.name);
    }
}

#[test]
fn published_vectors_of_the_budget_are_answered() {
    let vectors: Vec<Budget> =
        serde_json::from_str(include_str!("fixtures/be-budget.json")).unwrap();
    assert_eq!(vectors.len(), 2);
    for Budget { name, capacity, node, pods, best_effort, reserved, .. } in &vectors {
        let vector = vectors.iter().find(|vector| vector.name == *name).unwrap();
        let usage = NodeUsage {
            capacity: *capacity,
            node: *node,
            pods: *pods,
            best_effort: *best_effort,
            reserved: *reserved,
        };
        let budget = budget_cores(&usage, vector.threshold_percent / 100.0, 0.0);
        let quota = grown_quota_usec(budget, Some(vector.current_quota_usec), *capacity, 100_000);
        assert_eq!(quota, Some(vector.expected_quota_usec), "{name}: budget {budget}");
    }
}

#[test]
fn the_budget_counts_reserved_cpus_and_keeps_its_minimum() {
    let usage = NodeUsage { capacity: 10.0, node: 4.0, pods: 3.0, best_effort: 1.0, reserved: 2.0 };
    assert!((budget_cores(&usage, 0.65, 0.0) - 2.5).abs() < 1e-9, "6.5 - 2 pods - 2 reserved");
    let busy = NodeUsage { node: 10.0, pods: 9.0, ..usage };
    assert_eq!(budget_cores(&busy, 0.65, 0.0), 0.0);
    assert_eq!(budget_cores(&busy, 0.65, 0.1), 1.0);
}

/// koordlet divides by zero here (cpu_suppress.go:405).
#[test]
fn exclusive_and_reserved_cpus_may_cover_the_node() {
    let usage = NodeUsage { capacity: 8.0, node: 8.0, pods: 4.0, best_effort: 0.0, reserved: 8.0 };
    assert_eq!(budget_cores(&usage, 0.65, 0.0), 0.0);
    for current in [0, 8] {
        assert_eq!(grown_cpus(0.0, current, 0, 2), 0, "a pool of no CPUs");
    }
    let (topology, all) = (grid(1, 1, 4, 2), (0..8).collect());
    assert!(keep_cpus(&topology, &CpuSet::default(), &all, &all, 2).is_empty());
}

#[test]
fn siblings_of_exclusive_cpus_are_given_up_first() {
    let topology = grid(1, 1, 4, 2);
    let kept = |pool: &str, exclusive: &str, cpus| kept(&topology, [pool, exclusive, ""], cpus);
    // CPU 1 is the sibling of the exclusive CPU 0.
    assert_eq!(kept("1-7", "0", 6), "2-7");
    assert_eq!(kept("1-7", "0", 4), "2-5");
    assert_eq!(kept("1-7", "0", 7), "1-7");
    assert_eq!(kept("1,3", "0,2", 1), "1");
}

#[test]
fn reserved_cpus_are_kept_only_to_reach_the_number() {
    let topology = grid(1, 1, 4, 2);
    let kept = |exclusive: &str, cpus| {
        let pool = if exclusive.is_empty() { "0-7" } else { "0-3,5-7" };
        kept(&topology, [pool, exclusive, "0-1"], cpus)
    };
    assert_eq!([kept("", 2), kept("", 4), kept("", 6)], ["2-3", "2-5", "2-7"]);
    assert_eq!([kept("", 7), kept("", 8)], ["0,2-7", "0-7"]);
    // CPU 5 is the sibling of the exclusive CPU 4.
    assert_eq!([kept("4", 4), kept("4", 5), kept("4", 6)], ["2-3,6-7", "2-3,5-7", "0,2-3,5-7"]);
}

/// [`keep_cpus`] of a pool, beside exclusive and reserved CPUs.
fn kept(topology: &Topology, sets: [&str; 3], cpus: usize) -> String {
    let [pool, exclusive, reserved] = sets.map(|set| set.parse::<CpuSet>().expect("a CPU list"));
    keep_cpus(topology, &pool, &exclusive, &reserved, cpus).to_string()
}

#[test]
fn growth_of_a_quota_is_limited_and_small_changes_are_skipped() {
    let quota = |budget, current| grown_quota_usec(budget, current, 10.0, 100_000);
    assert_eq!(quota(5.0, Some(100_000)), Some(200_000), "a tenth of 10 cores");
    assert_eq!(quota(0.5, Some(400_000)), Some(50_000), "shrinks at once");
    assert_eq!(quota(4.05, Some(400_000)), None);
    assert_eq!(quota(0.0, Some(400_000)), Some(2_000));
    assert_eq!(quota(3.0, None), Some(300_000));
}

fn cores() -> impl Strategy<Value = f64> {
    prop_oneof![
        10 => 0.0..600.0f64,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => -5.0..0.0f64
    ]
}

prop_compose! {
    fn usage()(capacity in cores(), node in cores(), pods in cores(), best_effort in cores(),
               reserved in cores()) -> NodeUsage {
        NodeUsage { capacity, node, pods, best_effort, reserved }
    }
}

proptest! {
    #[test]
    fn budget_is_a_finite_number_from_zero(usage in usage(), least in 0.0..0.5f64) {
        let budget = budget_cores(&usage, 0.65, least);
        prop_assert!(budget.is_finite() && budget >= 0.0, "{budget}");
    }

    #[test]
    fn more_use_by_others_never_raises_the_budget(
        capacity in 1.0..256.0f64, pods in 0.0..256.0f64, system in 0.0..64.0f64,
        more in 0.0..64.0f64, threshold in 0.1..1.0f64,
    ) {
        let usage = NodeUsage { capacity, node: pods + system, pods, ..NodeUsage::default() };
        let budget = budget_cores(&usage, threshold, 0.0);
        let pods_use_more = NodeUsage { node: usage.node + more, pods: pods + more, ..usage };
        let system_uses_more = NodeUsage { node: usage.node + more, ..usage };
        let best_effort = pods.min(more);
        let best_effort_is_part = NodeUsage { best_effort, ..usage };
        prop_assert!(budget_cores(&pods_use_more, threshold, 0.0) <= budget + 1e-9);
        prop_assert!(budget_cores(&system_uses_more, threshold, 0.0) <= budget + 1e-9);
        prop_assert!(budget_cores(&best_effort_is_part, threshold, 0.0) >= budget - 1e-9);
    }

    #[test]
    fn cpus_keep_the_floor_and_grow_by_a_tenth(
        budget in cores(), current in 0..600usize, node in 0..600usize, floor in 2..8usize,
    ) {
        let cpus = grown_cpus(budget, current, node, floor);
        prop_assert!(cpus >= floor.min(node) && cpus <= node);
        prop_assert!(cpus <= (current + node.div_ceil(10)).max(floor.min(node)));
        let larger = grown_cpus(budget + 1.0, current, node, floor);
        prop_assert!(larger >= cpus || !budget.is_finite(), "monotone in the budget");
    }

    #[test]
    fn quota_keeps_its_floor_and_grows_by_a_tenth(
        budget in cores(), current in 0..60_000_000u64, capacity in 1.0..600.0f64,
    ) {
        if let Some(quota) = grown_quota_usec(budget, Some(current), capacity, 100_000) {
            prop_assert!(quota >= 2_000);
            let most = current + (capacity * 10_000.0).round() as u64;
            prop_assert!(quota <= most.max(2_000), "{quota} > {most}");
        }
    }

    /// A change that is too small to write leaves the quota at its current value.
    #[test]
    fn a_larger_budget_never_gives_a_smaller_quota(
        budget in -5.0..600.0f64, more in 0.0..64.0f64, current in 2_000..60_000_000u64,
        is_first: bool, capacity in 1.0..600.0f64,
    ) {
        let current = (!is_first).then_some(current);
        let quota = |budget| grown_quota_usec(budget, current, capacity, 100_000).or(current);
        let (smaller, larger) = (quota(budget), quota(budget + more));
        // Two budgets around the current quota may differ by a change that is not written.
        let skipped = (capacity * 1_000.0).round() as u64;
        prop_assert!(larger.unwrap() + skipped >= smaller.unwrap(), "{smaller:?}, {larger:?}");
    }

    #[test]
    fn kept_cpus_are_of_the_pool_and_as_many_as_asked(
        sockets in 1..3u32, cores in 1..5u32, threads in 1..3u32,
        pool in proptest::collection::vec(any::<bool>(), 16), cpus in 0..20usize,
        exclusive in proptest::collection::vec(any::<bool>(), 16),
        reserved in proptest::collection::vec(any::<bool>(), 16),
    ) {
        let topology = grid(sockets, 1, cores, threads);
        let online = sockets * cores * threads;
        let set = |chosen: &[bool]| -> CpuSet {
            (0..online).filter(|&cpu| chosen[cpu as usize]).collect()
        };
        let exclusive = set(&exclusive);
        let pool: CpuSet = set(&pool).iter().filter(|&cpu| !exclusive.contains(cpu)).collect();
        let reserved = set(&reserved);
        let kept = keep_cpus(&topology, &pool, &exclusive, &reserved, cpus);
        prop_assert_eq!(kept.len(), cpus.min(pool.len()));
        prop_assert!(kept.iter().all(|cpu| pool.contains(cpu)));
        let is_needed = pool.difference(&reserved).len() < cpus;
        prop_assert!(is_needed || kept.intersection(&reserved).is_empty());
    }
}
