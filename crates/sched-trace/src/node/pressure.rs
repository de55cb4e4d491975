//! Contention-only pressure: the wall-clock time in which at least one thread waited for a CPU
//! although its quotas allowed it to run. PSI cannot give it, because PSI counts throttled threads
//! as waiting.
//!
//! The trace does not record which waits overlap, so the time is known as a range: [`interval`]
//! derives the upper bound, [`block`] the lower one. A count may reach this module late: the part of
//! a wait in progress up to a quarter of a second, a wait in a container under a limit when it ends,
//! the cause of a wait that the kernel moved to another CPU with the next scan of the threads. Late
//! counts fill the gaps that the upper bound left before ([`Total`]).

mod block;
mod interval;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use snapshot::{
    ByRow, CgroupKind, ContainerIdentity, ContainerRow, ContainerWaits, NodeSnapshot, NodeWaits,
    PodIdentity, PressureRow, PressureScope, TraceMode,
};

use crate::waits::TracedLoss;
use block::Block;
use interval::{Interval, PodWaits, Scoped, Upper};

/// Number of readings for which a count of a container that is gone may be missing: its last waits
/// are read after the snapshot that no longer has it.
const DEPARTURE: u8 = 2;
/// Number of past intervals that a late count may belong to: a minute.
const REACH: usize = 60;

/// Turns the trace's counters into pressure per poll.
#[derive(Debug, Default)]
pub(super) struct PressureMeter {
    counters: Counters,
    /// Containers that are gone, and the number of readings for which their counts may be missing.
    departed: Vec<(Scoped, u8)>,
    read_at: Option<Instant>,
    /// Number of online CPUs.
    cpus: Option<u32>,
    block: Block,
    totals: BTreeMap<PressureScope, Total>,
}

/// Counters at one reading.
#[derive(Debug, Default)]
struct Counters {
    /// In the order of the snapshot's rows.
    containers: Vec<(Arc<ContainerIdentity>, Counted)>,
    /// Wait time of containers that are not known, nanoseconds.
    unknown_ns: u64,
}

/// Counters of one container.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    others_ns: u64,
    self_ns: u64,
    unattributed_ns: u64,
    /// Number of waits of more than a second, and of more than 100 ms.
    long: [u64; 2],
}

/// The bounds since the start, nanoseconds.
#[derive(Debug, Default)]
struct Total {
    /// Up to the current block, and in it.
    lower_ns: u64,
    lower_of_block_ns: u64,
    upper_ns: u64,
    /// Wall time of the last intervals that the upper bound does not contain, the newest last.
    gaps: VecDeque<u64>,
}

impl PressureMeter {
    /// Reads the counters of one poll, of which `waits` has been made for `snapshot`. `now` is the time
    /// up to which they count. Returns nothing for
    /// the first reading, and nothing unless waits are traced all the time: counts of a trace in
    /// bursts are estimates, not bounds.
    ///
    /// `lost`: lost time since the last reading, by victim.
    pub(super) fn read<'a>(
        &mut self,
        now: Instant,
        waits: &NodeWaits,
        lost: impl Iterator<Item = (&'a PodIdentity, &'a TracedLoss)>,
        snapshot: &'a NodeSnapshot,
    ) -> Vec<PressureRow> {
        let mode = waits.trace.as_ref().map(|trace| trace.mode);
        if mode != Some(TraceMode::Continuous) {
            let mut totals = std::mem::take(&mut self.totals);
            totals.values_mut().for_each(Total::interrupt);
            *self = Self { totals, ..Self::default() };
            return Vec::new();
        }
        let elapsed = self.read_at.and_then(|last| now.checked_duration_since(last));
        self.read_at = Some(now);
        let mut interval = self.advance(waits, snapshot);
        lost.for_each(|(victim, lost)| interval.add_lost(victim, lost));
        let Some(elapsed) = elapsed.filter(|time| !time.is_zero()) else { return Vec::new() };
        interval.elapsed_ns = elapsed.as_nanos() as u64;
        self.rows(&interval)
    }

    /// Waits since the last reading.
    fn advance<'a>(&mut self, waits: &NodeWaits, snapshot: &'a NodeSnapshot) -> Interval<'a> {
        let before = std::mem::take(&mut self.counters);
        let mut interval = Interval {
            any_unnamed: snapshot.cgroups.iter().any(|row| matches!(row.kind, CgroupKind::Pending)),
            cpus: self.advance_cpus(snapshot),
            ..Interval::default()
        };
        self.counters.containers.reserve_exact(snapshot.containers.len());
        let (mut traced, mut last) =
            (ByRow::new(&waits.containers), ByRow::new(&before.containers));
        for (at, row) in snapshot.containers.iter().enumerate() {
            let counted = Counted::of(traced.get(at, &row.identity).and_then(Option::as_deref));
            let last = last.get(at, &row.identity).copied().unwrap_or_default();
            interval.pod(row).add_container(row, &counted.since(last));
            self.counters.containers.push((Arc::clone(&row.identity), counted));
        }
        let losses = waits.trace.as_ref().map(|trace| trace.losses).unwrap_or_default();
        self.counters.unknown_ns = losses.lost_ns + losses.unknown_cgroup_ns;
        interval.unknown_ns += self.counters.unknown_ns.saturating_sub(before.unknown_ns);
        self.advance_departed(&before);
        interval
    }

    /// Number of CPUs that were online at any time of the interval, as far as the readings show.
    fn advance_cpus(&mut self, snapshot: &NodeSnapshot) -> Option<u32> {
        let mut states = snapshot.node.cpus.iter();
        let online = states.find(|(state, _)| *state == "online").map(|&(_, cpus)| cpus);
        let before = std::mem::replace(&mut self.cpus, online);
        online.map(|online| online.max(before.unwrap_or(0)))
    }

    fn advance_departed(&mut self, before: &Counters) {
        self.departed.iter_mut().for_each(|(_, left)| *left -= 1);
        self.departed.retain(|&(_, left)| left > 0);
        let (before, now) = (&before.containers, &self.counters.containers);
        let is_same = |(a, b): (&(Arc<_>, _), &(Arc<_>, _))| Arc::ptr_eq(&a.0, &b.0);
        if before.len() != now.len() || !before.iter().zip(now).all(is_same) {
            let now: HashSet<&str> = now.iter().map(|(identity, _)| &*identity.labels).collect();
            let gone = before.iter().filter(|(identity, _)| !now.contains(&*identity.labels));
            self.departed.extend(gone.map(|(identity, _)| (Scoped::of(identity), DEPARTURE)));
        }
        self.departed.sort_by_key(|&(_, left)| std::cmp::Reverse(left));
        self.departed.dedup_by(|(later, _), (first, _)| later == first);
    }

    fn rows(&mut self, interval: &Interval<'_>) -> Vec<PressureRow> {
        let mut rows = Vec::new();
        self.block.add(interval);
        let lower_ns = self.block.lower_ns();
        for scope in [PressureScope::Node].into_iter().chain(PressureScope::CLASSES) {
            if !interval.has_live(scope) {
                continue;
            }
            let is_missing = self.departed.iter().any(|(gone, _)| gone.is_in(scope));
            let upper = if is_missing || interval.any_unnamed {
                Upper::whole(interval.elapsed_ns)
            } else {
                interval.upper(scope)
            };
            let total = self.totals.entry(scope).or_default();
            rows.push(total.add(scope, interval.elapsed_ns, lower_ns[scope as usize], &upper));
        }
        if self.block.is_over() {
            self.block = Block::default();
            self.totals.values_mut().for_each(Total::end_block);
        }
        rows
    }
}

impl Total {
    /// Adds an interval. `lower_of_block_ns`: the lower bound of the current block.
    ///
    /// The upper bound grows by the counted time, at most by the interval. What is above that may
    /// have been waited before: then it fills the gaps, the newest first. An attributed wait of up
    /// to a second began in the interval before at the earliest.
    fn add(
        &mut self,
        scope: PressureScope,
        elapsed_ns: u64,
        lower_of_block_ns: u64,
        upper: &Upper,
    ) -> PressureRow {
        let lower_ns = lower_of_block_ns.saturating_sub(self.lower_of_block_ns);
        self.lower_of_block_ns += lower_ns;
        let upper_ns = upper.counted_ns.min(elapsed_ns);
        let rest_ns = upper.counted_ns - upper_ns;
        let late_ns = if upper.any_long { rest_ns } else { rest_ns.min(upper.late_ns) };
        self.upper_ns += upper_ns + self.fill(late_ns, REACH) + self.fill(rest_ns - late_ns, 1);
        self.gaps.push_back(elapsed_ns - upper_ns);
        if self.gaps.len() > REACH {
            self.gaps.pop_front();
        }
        let share = |ns: u64| (ns as f64 / elapsed_ns as f64).min(1.0);
        PressureRow {
            scope,
            lower_ns: self.lower_ns(),
            upper_ns: self.upper_ns,
            lower: share(lower_ns.min(upper_ns)),
            upper: share(upper_ns),
        }
    }

    fn lower_ns(&self) -> u64 {
        self.lower_ns + self.lower_of_block_ns
    }

    fn end_block(&mut self) {
        self.lower_ns += std::mem::take(&mut self.lower_of_block_ns);
    }

    /// Ends a period of continuous tracing.
    fn interrupt(&mut self) {
        self.end_block();
        self.gaps.clear();
    }

    /// Fills the gaps of the last `reach` intervals with up to `ns`; returns how much was filled.
    fn fill(&mut self, ns: u64, reach: usize) -> u64 {
        let mut left = ns;
        for gap in self.gaps.iter_mut().rev().take(reach) {
            let filled = left.min(*gap);
            *gap -= filled;
            left -= filled;
        }
        ns - left
    }
}

impl Counted {
    fn of(waits: Option<&ContainerWaits>) -> Self {
        waits.map_or_else(Self::default, |waits| Self {
            others_ns: waits.neighbor_ns + waits.system_ns,
            self_ns: waits.self_ns,
            unattributed_ns: waits.unattributed_ns,
            long: {
                let [.., tenth, second] = waits.latency.counts;
                [second, tenth + second]
            },
        })
    }

    fn since(&self, last: Self) -> Self {
        Self {
            others_ns: self.others_ns.saturating_sub(last.others_ns),
            self_ns: self.self_ns.saturating_sub(last.self_ns),
            unattributed_ns: self.unattributed_ns.saturating_sub(last.unattributed_ns),
            long: [0, 1].map(|at| self.long[at].saturating_sub(last.long[at])),
        }
    }
}

impl PodWaits {
    fn add_container(&mut self, row: &ContainerRow, gained: &Counted) {
        self.others_ns += gained.others_ns;
        self.self_ns += gained.self_ns;
        self.unattributed_ns += gained.unattributed_ns;
        self.any_long |= gained.long[0] > 0;
        self.is_late |= gained.long[1] > 0 && is_limited(row);
        if row.live {
            self.cpusets.push(row.cpuset.clone());
        }
    }
}

/// Whether a quota may have throttled the container.
fn is_limited(row: &ContainerRow) -> bool {
    row.cfs.is_some() || row.throttled_ancestor_ns.is_some()
}

#[cfg(test)]
mod tests;
