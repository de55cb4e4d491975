//! Adds up cgroups into containers and pods, as monotonic counters. Pure.

use std::sync::Arc;

use foldhash::HashMap;
use snapshot::{ContainerWaits, SmtShares};

use crate::batch::{CgroupSample, PairKey, PairSample, Pending};
use crate::interference::{self, InterferenceTable};
use crate::layout::IDLE;
use crate::lost::{self, LostTable};
use crate::residual::Residual;
use crate::waits::{
    Aggressor, ContainerId, LostTo, Owner, Owners, PodId, RunDelay, TracedContainer, TracedLoss,
};

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
    /// Shared with the reports, and copied with the first change after each.
    waits: Arc<ContainerWaits>,
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
    accounts: HashMap<ContainerId, Account>,
    interference: InterferenceTable,
    lost: LostTable,
    /// Pairs of one poll, in a buffer that is reused.
    batch: Vec<(PairKey, PairSample)>,
    /// Wait time of cgroups that were never identified, nanoseconds.
    pub(crate) unknown_cgroup_ns: u64,
}

/// What is kept of a container that waited, and of its pod.
struct Waiting<'a> {
    pod: PodId,
    waits: &'a mut ContainerWaits,
    pending_ns: &'a mut u64,
    residual: &'a mut Residual,
    interference: &'a mut interference::Victim,
    lost: &'a mut lost::Victim,
    unknown_cgroup_ns: &'a mut u64,
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
            accounts: HashMap::default(),
            interference: InterferenceTable::default(),
            lost: LostTable::default(),
            batch: Vec::new(),
            unknown_cgroup_ns: 0,
        }
    }

    /// Begins a poll with the samples of earlier polls: adds those whose owner is known by now. The
    /// others stay pending for a limited number of polls.
    pub(crate) fn retry(&mut self, pending: &mut Pending, owners: &mut dyn Owners) {
        for account in self.accounts.values_mut() {
            account.accounted_before_ns = account.accounted_ns();
            account.pending_ns = 0;
        }
        let max_age = if pending.len() > MAX_PENDING { 0 } else { MAX_AGE };
        pending.cgroups.retain(|&cgroup, sample| {
            sample.age += 1;
            self.take_cgroup(owners.owner(cgroup), sample) && sample.age <= max_age
        });
        pending.pairs.retain(|&key, sample| {
            sample.age += 1;
            self.take_pair(key, sample, owners, sample.age > max_age)
        });
    }

    /// Adds new samples, or makes them pending until their owner is known.
    pub(crate) fn add(
        &mut self,
        cgroups: impl Iterator<Item = (u64, CgroupSample)>,
        pairs: impl Iterator<Item = (PairKey, PairSample)>,
        pending: &mut Pending,
        owners: &mut dyn Owners,
    ) {
        for (cgroup, sample) in cgroups {
            let sample = CgroupSample { age: 1, ..sample };
            if self.take_cgroup(owners.owner(cgroup), &sample) {
                pending.add_cgroup(cgroup, &sample);
            }
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(pairs.map(|(key, sample)| (key, PairSample { age: 1, ..sample })));
        // What is kept of a victim is looked up once.
        batch.sort_unstable_by_key(|(key, _)| (key.victim, key.holder));
        for pairs in batch.chunk_by(|(a, _), (b, _)| a.victim == b.victim) {
            self.take_pairs(pairs, pending, owners);
        }
        batch.clear();
        self.batch = batch;
    }

    /// Adds the waits of one cgroup, or makes them pending until the other one is known.
    fn take_pairs(
        &mut self,
        pairs: &[(PairKey, PairSample)],
        pending: &mut Pending,
        owners: &mut dyn Owners,
    ) {
        let Some((first, _)) = pairs.first() else { return };
        match owners.owner(first.victim) {
            Owner::Container { container, pod } => {
                let mut waiting = self.waiting(container, pod);
                for (key, sample) in pairs {
                    let holder = holder(key.holder, owners);
                    if holder == Owner::Unknown {
                        *waiting.pending_ns += sample.wait_ns;
                        pending.add_pair(*key, sample);
                    } else {
                        waiting.take(holder, sample);
                    }
                }
            }
            Owner::Pod(_) | Owner::System => {}
            Owner::Unknown => pairs.iter().for_each(|(key, sample)| pending.add_pair(*key, sample)),
        }
    }

    /// Ends a poll, `elapsed_secs` after the one before.
    pub(crate) fn end_poll(&mut self, elapsed_secs: f64) {
        self.interference.update_series(elapsed_secs);
    }

    /// Returns whether the sample must stay pending.
    fn take_cgroup(&mut self, owner: Owner, sample: &CgroupSample) -> bool {
        match owner {
            Owner::Container { container, pod } => {
                let is_late = sample.age > 1;
                let lost = self.lost.victim(pod);
                lost.add(LostTo::System, sample.lost_idle_ns, is_late);
                lost.add(LostTo::Unattributed, sample.lost_unknown_ns, is_late);
                lost.add_wakeups(sample.wakeups, sample.late_wakeups);
                let account = account(&mut self.accounts, self.has_smt, container, pod);
                account.residual.add_unknown(sample.unknown_ns);
                let waits = Arc::make_mut(&mut account.waits);
                waits.throttled_ns += sample.throttled_ns;
                waits.self_ns += sample.self_ns;
                waits.system_ns += sample.idle_ns;
                waits.latency.add(&sample.latency);
                waits.stalls.add(&sample.stalls);
                if let Some(smt) = &mut waits.smt {
                    smt.self_ns += sample.smt_self_ns;
                    smt.idle_ns += sample.smt_idle_ns;
                }
                false
            }
            Owner::Pod(_) | Owner::System => false,
            Owner::Unknown => true,
        }
    }

    /// Returns whether the sample must stay pending; with `last_chance`, never.
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
        let holder = holder(key.holder, owners);
        let mut waiting = self.waiting(container, pod);
        if holder == Owner::Unknown && !last_chance {
            *waiting.pending_ns += sample.wait_ns;
            return true;
        }
        waiting.take(holder, sample);
        false
    }

    fn waiting(&mut self, container: ContainerId, pod: PodId) -> Waiting<'_> {
        let account = account(&mut self.accounts, self.has_smt, container, pod);
        Waiting {
            pod,
            waits: Arc::make_mut(&mut account.waits),
            pending_ns: &mut account.pending_ns,
            residual: &mut account.residual,
            interference: self.interference.victim(pod),
            lost: self.lost.victim(pod),
            unknown_cgroup_ns: &mut self.unknown_cgroup_ns,
        }
    }

    /// Compares with the run delays that were read since the batch before the last one.
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

    /// The counters.
    pub(crate) fn containers(&mut self) -> impl Iterator<Item = TracedContainer> {
        self.accounts.iter_mut().map(|(&container, account)| {
            let unattributed_ns = account.residual.unattributed_ns();
            if account.waits.unattributed_ns != unattributed_ns {
                Arc::make_mut(&mut account.waits).unattributed_ns = unattributed_ns;
            }
            TracedContainer { container, pod: account.pod, waits: Arc::clone(&account.waits) }
        })
    }

    /// Wait time by victim and aggressor.
    pub(crate) fn interference(&self) -> impl Iterator<Item = ((PodId, Aggressor), u64)> {
        self.interference.rows()
    }

    /// Lost time since the last call, by victim.
    pub(crate) fn take_lost(&mut self) -> Vec<TracedLoss> {
        self.lost.take()
    }
}

impl Waiting<'_> {
    /// Adds a wait, or time on a core, together with the cgroup that caused it or shared the core.
    fn take(&mut self, holder: Owner, sample: &PairSample) {
        let is_late = sample.age > 1;
        let waits = &mut *self.waits;
        let is_self = matches!(holder, Owner::Container { pod: other, .. } | Owner::Pod(other) if other == self.pod);
        if let Some(smt) = &mut waits.smt {
            *(if is_self { &mut smt.self_ns } else { &mut smt.other_ns }) += sample.smt_ns;
        }
        match holder {
            _ if is_self => waits.self_ns += sample.wait_ns,
            Owner::Container { pod: other, .. } | Owner::Pod(other) => {
                waits.neighbor_ns += sample.wait_ns;
                self.interference.add(Aggressor::Pod(other), sample.wait_ns);
                self.lost.add(LostTo::Pod(other), sample.lost_ns, is_late);
            }
            Owner::System => {
                waits.system_ns += sample.wait_ns;
                self.interference.add(Aggressor::System, sample.wait_ns);
                self.lost.add(LostTo::System, sample.lost_ns, is_late);
            }
            Owner::Unknown => {
                self.residual.add_unknown(sample.wait_ns);
                self.lost.add(LostTo::Unattributed, sample.lost_ns, is_late);
                *self.unknown_cgroup_ns += sample.wait_ns;
            }
        }
    }
}

/// The account of a container; a new one if there is none.
fn account(
    accounts: &mut HashMap<ContainerId, Account>,
    has_smt: bool,
    container: ContainerId,
    pod: PodId,
) -> &mut Account {
    accounts.entry(container).or_insert_with(|| {
        let smt = has_smt.then(SmtShares::default);
        Account {
            pod,
            waits: Arc::new(ContainerWaits { smt, ..ContainerWaits::default() }),
            pending_ns: 0,
            accounted_before_ns: 0,
            residual: Residual::default(),
        }
    })
}

/// Owner of the cgroup that held the CPU.
fn holder(cgroup: u64, owners: &mut dyn Owners) -> Owner {
    match cgroup {
        IDLE | ROOT => Owner::System,
        cgroup => owners.owner(cgroup),
    }
}

fn attributed(waits: &ContainerWaits) -> u64 {
    waits.throttled_ns + waits.neighbor_ns + waits.self_ns + waits.system_ns
}

#[cfg(test)]
mod tests;
