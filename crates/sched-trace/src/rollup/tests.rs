use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::waits::LostPart;

/// Owners of the cgroups: 10 and 11 are containers of pod 1, 12 is its sandbox, 20 is the
/// container of pod 2, 30 is a host service.
#[derive(Debug, Default)]
struct Node {
    hidden: Vec<u64>,
    gone: Vec<PodId>,
}

const POD: PodId = PodId(1);
const OTHER_POD: PodId = PodId(2);

fn container(id: u64) -> ContainerId {
    ContainerId(id)
}

impl Owners for Node {
    fn owner(&mut self, cgroup: u64) -> Owner {
        match cgroup {
            _ if self.hidden.contains(&cgroup) => Owner::Unknown,
            10 | 11 => Owner::Container { container: container(cgroup), pod: POD },
            12 => Owner::Pod(POD),
            20 => Owner::Container { container: container(20), pod: OTHER_POD },
            30 => Owner::System,
            _ => Owner::Unknown,
        }
    }

    fn has_container(&self, container: ContainerId) -> bool {
        !self.gone.contains(&if container.0 == 20 { OTHER_POD } else { POD })
    }

    fn has_pod(&self, pod: PodId) -> bool {
        !self.gone.contains(&pod)
    }
}

fn samples(cgroups: &[(u64, CgroupSample)], pairs: &[(u64, u64, u64)]) -> Pending {
    let pair = |&(victim, holder, wait_ns): &(u64, u64, u64)| {
        (
            PairKey { victim, holder },
            PairSample { wait_ns, lost_ns: wait_ns / 2, smt_ns: wait_ns * 2, age: 0 },
        )
    };
    Pending {
        cgroups: HashMap::from_iter(cgroups.iter().copied()),
        pairs: pairs.iter().map(pair).collect(),
    }
}

fn poll_once(rollup: &mut Rollup, pending: &mut Pending, node: &mut Node) {
    rollup.retry(pending, node);
    rollup.end_poll(1.0);
}

fn waits(rollup: &mut Rollup, id: u64) -> ContainerWaits {
    *rollup.containers().find(|traced| traced.container == container(id)).unwrap().waits
}

#[test]
fn each_part_goes_to_its_cause() {
    let mut rollup = Rollup::new(true);
    let sample = CgroupSample {
        throttled_ns: 1,
        self_ns: 10,
        idle_ns: 100,
        unknown_ns: 1000,
        smt_self_ns: 3,
        smt_idle_ns: 5,
        ..CgroupSample::default()
    };
    // Its own pod's other container and sandbox, another pod, a host service, a kernel thread,
    // an idle CPU.
    let pairs = [
        (10, 11, 20),
        (10, 12, 30),
        (10, 20, 700),
        (10, 30, 4000),
        (10, ROOT, 5000),
        (10, IDLE, 6000),
    ];
    poll_once(&mut rollup, &mut samples(&[(10, sample)], &pairs), &mut Node::default());
    let found = waits(&mut rollup, 10);
    assert_eq!(
        rollup.containers().next().map(|traced| (traced.container, traced.pod)),
        Some((container(10), POD))
    );
    assert_eq!((found.throttled_ns, found.self_ns, found.neighbor_ns), (1, 10 + 20 + 30, 700));
    assert_eq!((found.system_ns, found.unattributed_ns), (100 + 4000 + 5000 + 6000, 1000));
    let smt =
        SmtShares { self_ns: 3 + 40 + 60, other_ns: 2 * (700 + 4000 + 5000 + 6000), idle_ns: 5 };
    assert_eq!(found.smt, Some(smt));
}

#[test]
fn lost_time_has_a_culprit_and_none_in_its_own_pod() {
    let mut rollup = Rollup::new(false);
    let sample = CgroupSample {
        lost_idle_ns: 100,
        lost_unknown_ns: 1000,
        wakeups: 5,
        late_wakeups: 2,
        ..CgroupSample::default()
    };
    // Half of each wait is lost. Two containers of the pod, its own sandbox, another pod, a host
    // service, an unknown cgroup.
    let pairs = [(10, 12, 30), (10, 20, 700), (11, 20, 60), (10, 30, 4000), (10, 99, 90_000)];
    let mut pending = samples(&[(10, sample), (11, sample)], &pairs);
    (0..=MAX_AGE).for_each(|_| poll_once(&mut rollup, &mut pending, &mut Node::default()));
    let part = |(to, ns, late_ns)| LostPart { to, ns, late_ns };
    let by = [
        (LostTo::Pod(OTHER_POD), 350 + 30, 0),
        (LostTo::System, 2 * 100 + 2000, 0),
        // That the cgroup is unknown shows in a later poll.
        (LostTo::Unattributed, 2 * 1000 + 45_000, 45_000),
    ];
    let by = by.map(part).to_vec();
    let lost = TracedLoss { victim: POD, by, wakeups: 10, late_wakeups: 4 };
    assert_eq!(rollup.take_lost(), [lost]);
    assert_eq!(rollup.take_lost().len(), 0, "it is reported once");
}

#[test]
fn only_containers_have_waits() {
    let mut rollup = Rollup::new(false);
    let sample = CgroupSample { self_ns: 1, ..CgroupSample::default() };
    let mut pending = samples(&[(12, sample), (30, sample)], &[(12, 20, 5), (30, 20, 5)]);
    poll_once(&mut rollup, &mut pending, &mut Node::default());
    assert_eq!(rollup.containers().count() + rollup.interference().count(), 0);
    assert!(pending.cgroups.is_empty() && pending.pairs.is_empty());
}

#[test]
fn a_cgroup_that_becomes_known_later_loses_nothing() {
    let mut rollup = Rollup::new(false);
    let mut node = Node { hidden: vec![10, 20], ..Node::default() };
    let sample = CgroupSample { self_ns: 7, ..CgroupSample::default() };
    let mut pending = samples(&[(10, sample)], &[(10, 20, 5), (10, 30, 6)]);
    for _ in 0..3 {
        poll_once(&mut rollup, &mut pending, &mut node);
    }
    assert_eq!(rollup.containers().count(), 0);
    node.hidden.clear();
    poll_once(&mut rollup, &mut pending, &mut node);
    let found = waits(&mut rollup, 10);
    assert_eq!((found.self_ns, found.neighbor_ns, found.system_ns), (7, 5, 6));
}

#[test]
fn a_cgroup_that_never_becomes_known_blames_nobody() {
    let mut rollup = Rollup::new(false);
    let sample = CgroupSample { self_ns: 7, ..CgroupSample::default() };
    let mut pending = samples(&[(98, sample)], &[(10, 99, 5), (98, 10, 6)]);
    for _ in 0..=MAX_AGE {
        poll_once(&mut rollup, &mut pending, &mut Node::default());
    }
    assert!(pending.cgroups.is_empty() && pending.pairs.is_empty());
    assert_eq!(waits(&mut rollup, 10).unattributed_ns, 5);
    assert_eq!(rollup.unknown_cgroup_ns, 5 + 6);
    assert_eq!(rollup.interference().count(), 0);
}

#[test]
fn removed_cgroups_are_forgotten() {
    let mut rollup = Rollup::new(false);
    let mut node = Node::default();
    let ms = 1_000_000;
    poll_once(
        &mut rollup,
        &mut samples(&[], &[(10, 20, 50 * ms), (20, 10, 50 * ms), (20, 30, 1)]),
        &mut node,
    );
    assert_eq!(rollup.interference().count(), 3);
    node.gone.push(POD);
    rollup.retain(&node);
    assert_eq!(
        rollup.containers().map(|waits| waits.container).collect::<Vec<_>>(),
        [container(20)]
    );
    let left: Vec<_> = rollup.interference().map(|(pair, _)| pair).collect();
    assert_eq!(left, [(OTHER_POD, Aggressor::System)]);
}

#[test]
fn run_delay_that_was_not_attributed_shows() {
    let mut rollup = Rollup::new(false);
    let mut node = Node::default();
    let mut poll = |attributed_ns, gained_ns| {
        poll_once(&mut rollup, &mut samples(&[], &[(10, 20, attributed_ns)]), &mut node);
        rollup.reconcile(&[RunDelay { container: container(10), gained_ns }]);
        waits(&mut rollup, 10).unattributed_ns
    };
    assert_eq!(poll(100, 1_000_000), 0);
    // 100 from before the first report, and 40.
    assert_eq!(poll(40, 150), 10);
    assert_eq!(poll(90, 90), 10);
}

#[test]
fn a_wait_whose_holder_becomes_known_later_counts_once() {
    let mut rollup = Rollup::new(false);
    let mut node = Node::default();
    let mut pending = samples(&[], &[(10, 20, 100)]);
    let mut poll = |pending: &mut Pending, node: &mut Node, gained_ns| {
        poll_once(&mut rollup, pending, node);
        rollup.reconcile(&[RunDelay { container: container(10), gained_ns }]);
        let waits = waits(&mut rollup, 10);
        (waits.system_ns, waits.unattributed_ns)
    };
    assert_eq!(poll(&mut pending, &mut node, 0), (0, 0));
    node.hidden.push(30);
    pending.pairs.extend(samples(&[], &[(10, 30, 500)]).pairs);
    // 100 from before the first report, and 500, of which nothing is missing.
    assert_eq!(poll(&mut pending, &mut node, 600), (0, 0));
    assert_eq!(poll(&mut pending, &mut node, 20), (0, 20));
    node.hidden.clear();
    assert_eq!(poll(&mut pending, &mut node, 0), (500, 20));
    // A wait whose holder is never identified is unattributed, in full and only once.
    pending.pairs.extend(samples(&[], &[(10, 99, 70)]).pairs);
    let unattributed: Vec<_> = (0..=MAX_AGE + 1)
        .map(|at| poll(&mut pending, &mut node, if at == 0 { 70 } else { 0 }).1)
        .collect();
    assert_eq!((unattributed[0], unattributed[unattributed.len() - 1]), (20, 90));
}

#[test]
fn a_new_sample_is_added_or_waits_for_its_cgroups() {
    let mut rollup = Rollup::new(false);
    let mut pending = Pending::default();
    let sample = CgroupSample { self_ns: 7, lost_idle_ns: 3, ..CgroupSample::default() };
    let Pending { cgroups, pairs } =
        samples(&[(10, sample), (98, sample)], &[(10, 20, 50), (10, 99, 600), (98, 10, 8000)]);
    let mut node = Node::default();
    rollup.retry(&mut pending, &mut node);
    rollup.add(cgroups.into_iter(), pairs.into_iter(), &mut pending, &mut node);
    rollup.end_poll(1.0);
    assert_eq!((pending.cgroups.len(), pending.pairs.len()), (1, 2));
    let found = waits(&mut rollup, 10);
    assert_eq!((found.self_ns, found.neighbor_ns), (7, 50));
    let lost = rollup.take_lost().remove(0);
    assert!(lost.by.iter().all(|part| part.late_ns == 0), "{lost:?}");
    (0..MAX_AGE).for_each(|_| poll_once(&mut rollup, &mut pending, &mut node));
    assert_eq!((pending.len(), rollup.unknown_cgroup_ns), (0, 600 + 8000));
}

proptest! {
    #[test]
    fn every_nanosecond_is_in_one_counter_and_none_goes_back(
        polls in proptest::collection::vec(
            proptest::collection::vec((prop_oneof![Just(10u64), Just(11), Just(20)], 1u64..32, 0u64..1_000_000), 0..20),
            1..15,
        )
    ) {
        let mut rollup = Rollup::new(false);
        let mut pending = Pending::default();
        let (mut put_in, mut before) = (0, 0);
        for pairs in polls {
            for (victim, holder, ns) in pairs {
                pending.pairs.entry(PairKey { victim, holder }).or_default().wait_ns += ns;
                put_in += ns;
            }
            poll_once(&mut rollup, &mut pending, &mut Node::default());
            let counted = |traced: TracedContainer| attributed(&traced.waits) + traced.waits.unattributed_ns;
            let out: u64 = rollup.containers().map(counted).sum();
            let waiting: u64 = pending.pairs.values().map(|sample| sample.wait_ns).sum();
            prop_assert_eq!(out + waiting, put_in);
            prop_assert!(out >= before);
            before = out;
        }
    }
}
