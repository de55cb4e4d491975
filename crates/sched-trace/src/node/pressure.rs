//! Contention-only pressure: the wall-clock time in which at least one thread waited for a CPU
//! although its quotas allowed it to run. PSI cannot give it, because PSI counts throttled threads
//! as waiting.
//!
//! The trace does not record which waits overlap, so the time is known as a range
//! ([`interval`] derives it). A count may reach this module late: the causes of a wait that the
//! kernel moved to another CPU, or of a container that had no name yet. Late counts fill the gaps
//! that the upper bound left before ([`Total`]).

mod interval;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use snapshot::{
    CgroupKind, ContainerRow, ContainerWaits, Culprit, LostTime, NodeSnapshot, NodeWaits,
    PressureRow, PressureScope, TraceMode,
};

use interval::{Holder, Interval, PodKey, PodWaits, Upper};

/// Number of readings for which a count of a container that is gone may be missing: counts are read
/// one poll later.
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
    totals: BTreeMap<PressureScope, Total>,
}

/// Counters at one reading.
#[derive(Debug, Default)]
struct Counters {
    /// By the labels of the container's series.
    containers: HashMap<Box<str>, (Scoped, Counted)>,
    lost: HashMap<PodKey, BTreeMap<Holder, u64>>,
    /// Wait time of containers that are not known, nanoseconds.
    unknown_ns: u64,
}

/// What decides which scopes cover a container.
#[derive(Debug, Clone, PartialEq)]
struct Scoped {
    qos_class: Box<str>,
    best_effort: bool,
}

/// Counters of one container.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    others_ns: u64,
    self_ns: u64,
    unattributed_ns: u64,
    /// Number of waits of more than a second.
    long: u64,
}

/// The bounds since the start, nanoseconds.
#[derive(Debug, Default)]
struct Total {
    lower_ns: u64,
    upper_ns: u64,
    /// Wall time of the last intervals that the upper bound does not contain, the newest last.
    gaps: VecDeque<u64>,
}

impl PressureMeter {
    /// Reads the counters of one poll. `now` is the time up to which they count. Returns nothing for
    /// the first reading, and nothing unless waits are traced all the time: counts of a trace in
    /// bursts are estimates, not bounds.
    pub(super) fn read(
        &mut self,
        now: Instant,
        waits: &NodeWaits,
        snapshot: &NodeSnapshot,
    ) -> Vec<PressureRow> {
        let mode = waits.trace.as_ref().map(|trace| trace.mode);
        if mode != Some(TraceMode::Continuous) {
            let mut totals = std::mem::take(&mut self.totals);
            totals.values_mut().for_each(|total| total.gaps.clear());
            *self = Self { totals, ..Self::default() };
            return Vec::new();
        }
        let elapsed = self.read_at.and_then(|last| now.checked_duration_since(last));
        self.read_at = Some(now);
        let mut interval = self.advance(waits, snapshot);
        let Some(elapsed) = elapsed.filter(|time| !time.is_zero()) else { return Vec::new() };
        interval.elapsed_ns = elapsed.as_nanos() as u64;
        self.rows(&interval)
    }

    /// Waits since the last reading.
    fn advance(&mut self, waits: &NodeWaits, snapshot: &NodeSnapshot) -> Interval {
        let before = std::mem::take(&mut self.counters);
        let mut interval = Interval {
            any_unnamed: snapshot.cgroups.iter().any(|row| matches!(row.kind, CgroupKind::Pending)),
            cpus: self.advance_cpus(snapshot),
            ..Interval::default()
        };
        for row in &snapshot.containers {
            let counted = Counted::of(waits.containers.get(&row.identity.labels));
            let last = before.containers.get(&row.identity.labels).map(|(_, last)| *last);
            interval.pod(row).add_container(row, &counted.since(last.unwrap_or_default()));
            self.counters
                .containers
                .insert(row.identity.labels.clone(), (Scoped::of(row), counted));
        }
        for lost in &waits.lost {
            self.advance_lost(lost, &before, &mut interval);
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

    fn advance_lost(&mut self, lost: &LostTime, before: &Counters, interval: &mut Interval) {
        let key = (lost.victim.namespace.as_str().into(), lost.victim.pod.as_str().into());
        let last = before.lost.get(&key);
        let now: BTreeMap<Holder, u64> =
            lost.by.iter().map(|(culprit, ns)| (Holder::of(culprit), *ns)).collect();
        for (holder, &ns) in &now {
            let known = last.and_then(|last| last.get(holder).copied());
            let gained_ns = ns.saturating_sub(known.unwrap_or(0));
            match interval.pods.get_mut(&key) {
                Some(pod) => pod.add_lost(holder, gained_ns, known.is_some()),
                None => interval.unknown_ns += gained_ns,
            }
        }
        self.counters.lost.insert(key, now);
    }

    fn advance_departed(&mut self, before: &Counters) {
        self.departed.iter_mut().for_each(|(_, left)| *left -= 1);
        self.departed.retain(|&(_, left)| left > 0);
        let is_gone = |labels: &str| !self.counters.containers.contains_key(labels);
        let gone = before.containers.iter().filter(|(labels, _)| is_gone(labels));
        self.departed.extend(gone.map(|(_, (scoped, _))| (scoped.clone(), DEPARTURE)));
        self.departed.sort_by_key(|&(_, left)| std::cmp::Reverse(left));
        self.departed.dedup_by(|(later, _), (first, _)| later == first);
    }

    fn rows(&mut self, interval: &Interval) -> Vec<PressureRow> {
        let mut rows = Vec::new();
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
            rows.push(total.add(scope, interval, &upper));
        }
        rows
    }
}

impl Total {
    /// Adds an interval.
    ///
    /// The upper bound grows by the counted time, at most by the interval. What is above that may
    /// have been waited before: then it fills the gaps, the newest first. An attributed wait of up
    /// to a second began in the interval before at the earliest.
    fn add(&mut self, scope: PressureScope, interval: &Interval, upper: &Upper) -> PressureRow {
        let elapsed_ns = interval.elapsed_ns;
        let lower_ns = interval.lower_ns(scope);
        let upper_ns = upper.counted_ns.min(elapsed_ns);
        let rest_ns = upper.counted_ns - upper_ns;
        let late_ns = if upper.any_long { rest_ns } else { rest_ns.min(upper.late_ns) };
        self.upper_ns += upper_ns + self.fill(late_ns, REACH) + self.fill(rest_ns - late_ns, 1);
        self.lower_ns += lower_ns;
        self.gaps.push_back(elapsed_ns - upper_ns);
        if self.gaps.len() > REACH {
            self.gaps.pop_front();
        }
        let share = |ns: u64| ns as f64 / elapsed_ns as f64;
        PressureRow {
            scope,
            lower_ns: self.lower_ns,
            upper_ns: self.upper_ns,
            lower: share(lower_ns),
            upper: share(upper_ns),
        }
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

impl Scoped {
    fn of(row: &ContainerRow) -> Self {
        let (qos_class, best_effort) = (row.identity.qos_class.as_str(), row.identity.best_effort);
        Self { qos_class: qos_class.into(), best_effort }
    }

    fn is_in(&self, scope: PressureScope) -> bool {
        scope.covers(&self.qos_class, self.best_effort)
    }
}

impl Counted {
    fn of(waits: Option<&Arc<ContainerWaits>>) -> Self {
        waits.map_or_else(Self::default, |waits| Self {
            others_ns: waits.neighbor_ns + waits.system_ns,
            self_ns: waits.self_ns,
            unattributed_ns: waits.unattributed_ns,
            long: waits.latency.counts[waits.latency.counts.len() - 1],
        })
    }

    fn since(&self, last: Self) -> Self {
        Self {
            others_ns: self.others_ns.saturating_sub(last.others_ns),
            self_ns: self.self_ns.saturating_sub(last.self_ns),
            unattributed_ns: self.unattributed_ns.saturating_sub(last.unattributed_ns),
            long: self.long.saturating_sub(last.long),
        }
    }
}

impl Holder {
    fn of(culprit: &Culprit) -> Self {
        match culprit {
            Culprit::Pod(pod) => {
                Self::Pod((pod.namespace.as_str().into(), pod.pod.as_str().into()))
            }
            Culprit::System => Self::System,
            Culprit::Unattributed => Self::Unattributed,
        }
    }
}

impl PodWaits {
    fn add_container(&mut self, row: &ContainerRow, gained: &Counted) {
        self.others_ns += gained.others_ns;
        self.self_ns += gained.self_ns;
        self.unattributed_ns += gained.unattributed_ns;
        self.any_long |= gained.long > 0;
        if row.live {
            self.cpusets.push(row.cpuset.clone());
        }
    }
}

#[cfg(test)]
mod tests;
