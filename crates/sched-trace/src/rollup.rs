//! Adds up cgroups into containers and pods, as monotonic counters. Pure.

use std::collections::BTreeMap;

use snapshot::{ContainerWaits, SmtShares};

use crate::batch::{Batch, CgroupSample, PairKey, PairSample};
use crate::interference::InterferenceTable;
use crate::layout::IDLE;
use crate::residual::Residual;
use crate::waits::{Aggressor, ContainerId, Owner, Owners, PodId, RunDelay, TracedContainer};

/// Id of the root cgroup, which contains kernel threads.
const ROOT: u64 = 1;
/// Number of polls after which an unknown cgroup is given up: it was removed before it was
/// identified.
const MAX_AGE: u32 = 15;
/// Maximum number of entries that wait for their cgroups to be identified.
const MAX_PENDING: usize = 16_384;

/// State of one container.
#[derive(Debug)]
struct Account {
    pod: PodId,
    waits: ContainerWaits,
    /// Wait time caused by cgroups that may still be identified, nanoseconds.
    pending_ns: u64,
    /// Attributed and pending time before the last batch, nanoseconds.
    accounted_before_ns: u64,
    residual: Residual,
}

/// The accumulated waits of all containers.
#[derive(Debug)]
pub(crate) struct Rollup {
    has_smt: bool,
    accounts: BTreeMap<ContainerId, Account>,
    interference: InterferenceTable,
    /// Wait time of cgroups that were never identified, nanoseconds.
    pub(crate) unknown_cgroup_ns: u64,
}

/// A container's wait, or its time on a core, together with the cgroup that caused it or shared the
/// core.
#[derive(Debug, Clone, Copy)]
struct AttributedWait {
    container: ContainerId,
    pod: PodId,
    holder: Owner,
    sample: PairSample,
}

impl Account {
    /// Time that is attributed or still pending; a pending wait ends as attributed or unknown. None
    /// of it is missing in the comparison with the kernel's count.
    fn accounted_ns(&self) -> u64 {
        attributed(&self.waits) + self.pending_ns
    }
}

impl Rollup {
    /// `has_smt`: whether the two threads of any core are known.
    pub(crate) fn new(has_smt: bool) -> Self {
        Self {
            has_smt,
            accounts: BTreeMap::new(),
            interference: InterferenceTable::default(),
            unknown_cgroup_ns: 0,
        }
    }

    /// Adds the samples whose owner is known; the others stay in the batch for a limited number of
    /// polls.
    pub(crate) fn take(&mut self, batch: &mut Batch, owners: &mut dyn Owners, elapsed_secs: f64) {
        for account in self.accounts.values_mut() {
            account.accounted_before_ns = account.accounted_ns();
            account.pending_ns = 0;
        }
        let pending = batch.cgroups.len() + batch.pairs.len();
        let max_age = if pending > MAX_PENDING { 0 } else { MAX_AGE };
        batch.cgroups.retain(|&cgroup, sample| {
            sample.age += 1;
            self.take_cgroup(owners.owner(cgroup), sample) && sample.age <= max_age
        });
        batch.pairs.retain(|&key, sample| {
            sample.age += 1;
            self.take_pair(key, sample, owners, sample.age > max_age)
        });
        self.interference.update_series(elapsed_secs);
    }

    /// Returns whether the sample must stay in the batch.
    fn take_cgroup(&mut self, owner: Owner, sample: &CgroupSample) -> bool {
        match owner {
            Owner::Container { container, pod } => {
                let account = self.account(container, pod);
                account.waits.throttled_ns += sample.throttled_ns;
                account.waits.self_ns += sample.self_ns;
                account.waits.system_ns += sample.idle_ns;
                account.waits.latency.add(&sample.latency);
                account.waits.stalls.add(&sample.stalls);
                account.residual.add_unknown(sample.unknown_ns);
                if let Some(smt) = &mut account.waits.smt {
                    smt.self_ns += sample.smt_self_ns;
                    smt.idle_ns += sample.smt_idle_ns;
                }
                false
            }
            Owner::Pod(_) | Owner::System => false,
            Owner::Unknown => true,
        }
    }

    /// Returns whether the sample must stay in the batch; with `last_chance`, never.
    fn take_pair(
        &mut self,
        key: PairKey,
        sample: &PairSample,
        owners: &mut dyn Owners,
        last_chance: bool,
    ) -> bool {
        let (container, pod) = match owners.owner(key.victim) {
            Owner::Container { container, pod } => (container, pod),
            Owner::Pod(_) | Owner::System => return false,
            Owner::Unknown if last_chance => {
                self.unknown_cgroup_ns += sample.wait_ns;
                return false;
            }
            Owner::Unknown => return true,
        };
        let holder = match key.holder {
            IDLE | ROOT => Owner::System,
            holder => owners.owner(holder),
        };
        if holder == Owner::Unknown && !last_chance {
            self.account(container, pod).pending_ns += sample.wait_ns;
            return true;
        }
        self.take_attributed(AttributedWait { container, pod, holder, sample: *sample });
        false
    }

    fn take_attributed(&mut self, wait: AttributedWait) {
        let AttributedWait { container, pod, holder, sample } = wait;
        let waits = &mut self.account(container, pod).waits;
        let is_self = matches!(holder, Owner::Container { pod: other, .. } | Owner::Pod(other) if other == pod);
        if let Some(smt) = &mut waits.smt {
            *(if is_self { &mut smt.self_ns } else { &mut smt.other_ns }) += sample.smt_ns;
        }
        match holder {
            _ if is_self => waits.self_ns += sample.wait_ns,
            Owner::Container { pod: other, .. } | Owner::Pod(other) => {
                waits.neighbor_ns += sample.wait_ns;
                self.interference.add(pod, Aggressor::Pod(other), sample.wait_ns);
            }
            Owner::System => {
                waits.system_ns += sample.wait_ns;
                self.interference.add(pod, Aggressor::System, sample.wait_ns);
            }
            Owner::Unknown => {
                self.account(container, pod).residual.add_unknown(sample.wait_ns);
                self.unknown_cgroup_ns += sample.wait_ns;
            }
        }
    }

    fn account(&mut self, container: ContainerId, pod: PodId) -> &mut Account {
        let smt = self.has_smt.then(SmtShares::default);
        self.accounts.entry(container).or_insert_with(|| Account {
            pod,
            waits: ContainerWaits { smt, ..ContainerWaits::default() },
            pending_ns: 0,
            accounted_before_ns: 0,
            residual: Residual::default(),
        })
    }

    /// Compares with the run delays that were read while the last batch was counted.
    pub(crate) fn reconcile(&mut self, delays: &[RunDelay]) {
        for delay in delays {
            if let Some(account) = self.accounts.get_mut(&delay.container) {
                let (before, now) = (account.accounted_before_ns, account.accounted_ns());
                account.residual.reconcile(delay.gained_ns, before, now);
            }
        }
    }

    /// Ends or begins a period of estimates, which cannot be compared with run delays.
    pub(crate) fn interrupt(&mut self) {
        self.accounts.values_mut().for_each(|account| account.residual.interrupt());
    }

    /// Removes containers and pods that no longer exist.
    pub(crate) fn retain(&mut self, owners: &dyn Owners) {
        self.accounts.retain(|&container, _| owners.has_container(container));
        self.interference.retain(|pod| owners.has_pod(pod));
    }

    /// The counters, by container id.
    pub(crate) fn containers(&self) -> impl Iterator<Item = TracedContainer> {
        self.accounts.iter().map(|(&container, account)| {
            let unattributed_ns = account.residual.unattributed_ns();
            let waits = ContainerWaits { unattributed_ns, ..account.waits };
            TracedContainer { container, pod: account.pod, waits }
        })
    }

    /// Wait time by victim and aggressor.
    pub(crate) fn interference(&self) -> impl Iterator<Item = ((PodId, Aggressor), u64)> {
        self.interference.rows()
    }
}

fn attributed(waits: &ContainerWaits) -> u64 {
    waits.throttled_ns + waits.neighbor_ns + waits.self_ns + waits.system_ns
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

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

    fn batch(cgroups: &[(u64, CgroupSample)], pairs: &[(u64, u64, u64)]) -> Batch {
        let pair = |&(victim, holder, wait_ns): &(u64, u64, u64)| {
            (PairKey { victim, holder }, PairSample { wait_ns, smt_ns: wait_ns * 2, age: 0 })
        };
        Batch {
            cgroups: HashMap::from_iter(cgroups.iter().copied()),
            pairs: pairs.iter().map(pair).collect(),
        }
    }

    fn waits(rollup: &Rollup, id: u64) -> ContainerWaits {
        rollup.containers().find(|traced| traced.container == container(id)).unwrap().waits
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
        rollup.take(&mut batch(&[(10, sample)], &pairs), &mut Node::default(), 1.0);
        let found = waits(&rollup, 10);
        assert_eq!(
            rollup.containers().next().map(|traced| (traced.container, traced.pod)),
            Some((container(10), POD))
        );
        assert_eq!((found.throttled_ns, found.self_ns, found.neighbor_ns), (1, 10 + 20 + 30, 700));
        assert_eq!((found.system_ns, found.unattributed_ns), (100 + 4000 + 5000 + 6000, 1000));
        let smt = SmtShares {
            self_ns: 3 + 40 + 60,
            other_ns: 2 * (700 + 4000 + 5000 + 6000),
            idle_ns: 5,
        };
        assert_eq!(found.smt, Some(smt));
    }

    #[test]
    fn only_containers_have_waits() {
        let mut rollup = Rollup::new(false);
        let sample = CgroupSample { self_ns: 1, ..CgroupSample::default() };
        let mut batch = batch(&[(12, sample), (30, sample)], &[(12, 20, 5), (30, 20, 5)]);
        rollup.take(&mut batch, &mut Node::default(), 1.0);
        assert_eq!(rollup.containers().count() + rollup.interference().count(), 0);
        assert!(batch.cgroups.is_empty() && batch.pairs.is_empty());
    }

    #[test]
    fn a_cgroup_that_becomes_known_later_loses_nothing() {
        let mut rollup = Rollup::new(false);
        let mut node = Node { hidden: vec![10, 20], ..Node::default() };
        let sample = CgroupSample { self_ns: 7, ..CgroupSample::default() };
        let mut batch = batch(&[(10, sample)], &[(10, 20, 5), (10, 30, 6)]);
        for _ in 0..3 {
            rollup.take(&mut batch, &mut node, 1.0);
        }
        assert_eq!(rollup.containers().count(), 0);
        node.hidden.clear();
        rollup.take(&mut batch, &mut node, 1.0);
        let found = waits(&rollup, 10);
        assert_eq!((found.self_ns, found.neighbor_ns, found.system_ns), (7, 5, 6));
    }

    #[test]
    fn a_cgroup_that_never_becomes_known_blames_nobody() {
        let mut rollup = Rollup::new(false);
        let sample = CgroupSample { self_ns: 7, ..CgroupSample::default() };
        let mut batch = batch(&[(98, sample)], &[(10, 99, 5), (98, 10, 6)]);
        for _ in 0..=MAX_AGE {
            rollup.take(&mut batch, &mut Node::default(), 1.0);
        }
        assert!(batch.cgroups.is_empty() && batch.pairs.is_empty());
        assert_eq!(waits(&rollup, 10).unattributed_ns, 5);
        assert_eq!(rollup.unknown_cgroup_ns, 5 + 6);
        assert_eq!(rollup.interference().count(), 0);
    }

    #[test]
    fn removed_cgroups_are_forgotten() {
        let mut rollup = Rollup::new(false);
        let mut node = Node::default();
        let ms = 1_000_000;
        rollup.take(
            &mut batch(&[], &[(10, 20, 50 * ms), (20, 10, 50 * ms), (20, 30, 1)]),
            &mut node,
            1.0,
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
            rollup.take(&mut batch(&[], &[(10, 20, attributed_ns)]), &mut node, 1.0);
            rollup.reconcile(&[RunDelay { container: container(10), gained_ns }]);
            waits(&rollup, 10).unattributed_ns
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
        let mut pending = batch(&[], &[(10, 20, 100)]);
        let mut poll = |pending: &mut Batch, node: &mut Node, gained_ns| {
            rollup.take(pending, node, 1.0);
            rollup.reconcile(&[RunDelay { container: container(10), gained_ns }]);
            let waits = waits(&rollup, 10);
            (waits.system_ns, waits.unattributed_ns)
        };
        assert_eq!(poll(&mut pending, &mut node, 0), (0, 0));
        node.hidden.push(30);
        pending.pairs.extend(batch(&[], &[(10, 30, 500)]).pairs);
        // 100 from before the first report, and 500, of which nothing is missing.
        assert_eq!(poll(&mut pending, &mut node, 600), (0, 0));
        assert_eq!(poll(&mut pending, &mut node, 20), (0, 20));
        node.hidden.clear();
        assert_eq!(poll(&mut pending, &mut node, 0), (500, 20));
        // A wait whose holder is never identified is unattributed, in full and only once.
        pending.pairs.extend(batch(&[], &[(10, 99, 70)]).pairs);
        let unattributed: Vec<_> = (0..=MAX_AGE + 1)
            .map(|at| poll(&mut pending, &mut node, if at == 0 { 70 } else { 0 }).1)
            .collect();
        assert_eq!((unattributed[0], unattributed[unattributed.len() - 1]), (20, 90));
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
            let mut pending = Batch::default();
            let (mut put_in, mut before) = (0, 0);
            for pairs in polls {
                for (victim, holder, ns) in pairs {
                    pending.pairs.entry(PairKey { victim, holder }).or_default().wait_ns += ns;
                    put_in += ns;
                }
                rollup.take(&mut pending, &mut Node::default(), 1.0);
                let counted = |traced: TracedContainer| attributed(&traced.waits) + traced.waits.unattributed_ns;
                let out: u64 = rollup.containers().map(counted).sum();
                let waiting: u64 = pending.pairs.values().map(|sample| sample.wait_ns).sum();
                prop_assert_eq!(out + waiting, put_in);
                prop_assert!(out >= before);
                before = out;
            }
        }
    }
}
