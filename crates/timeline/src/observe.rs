//! Adds snapshots to the history.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use api::{Measure, Rates};
use snapshot::{
    ContainerRow, CpuTimes, InterferenceRow, NodeSnapshot, NodeWaits, ends_window, share,
};

use crate::counters::Counters;
use crate::history::position;
use crate::node::{NodeValues, Totals, contention, cpus, shared, trace, without_load};
use crate::state::{Container, Pair, TimelineState};

impl TimelineState {
    /// Whether the snapshot ends a frame, or is the first.
    pub(crate) fn ends_frame(&self, snapshot: &NodeSnapshot) -> bool {
        let Some(read_at) = snapshot.taken.and(snapshot.read_at) else { return false };
        self.began.is_none_or(|began| ends_window(began, read_at, snapshot.interval))
    }

    /// Adds a snapshot, with the cumulative times of the CPUs; these are empty if no view needs them.
    /// Returns the number of the frame that it ended, if any.
    pub(crate) fn observe(
        &mut self,
        snapshot: &NodeSnapshot,
        cpu_times: Vec<CpuTimes>,
    ) -> Option<u64> {
        let (taken, read_at) = (snapshot.taken?, snapshot.read_at?);
        if !self.ends_frame(snapshot) {
            return None;
        }
        // The first snapshot is the baseline of the counters.
        let seconds =
            self.began.map_or(0.0, |began| read_at.saturating_duration_since(began).as_secs_f64());
        let is_first = self.began.replace(read_at).is_none();
        self.frame += 1;
        self.containers.advance(self.frame);
        self.pairs.advance(self.frame);
        let position = position(self.frame);
        self.at_ms[position] = milliseconds(taken);
        self.seconds[position] = seconds;
        let traced = snapshot.waits.trace.is_some();
        for row in snapshot.containers.iter().filter(|row| row.live) {
            self.add_container(row, traced, seconds);
        }
        self.add_pairs(&snapshot.waits, is_first, seconds);
        self.add_node(snapshot, cpu_times, seconds);
        (!is_first).then_some(self.frame)
    }

    fn add_container(&mut self, row: &ContainerRow, traced: bool, seconds: f64) {
        let now = Counters::of(row, traced);
        let frame = self.frame;
        let is_same = |kept: &Container| Arc::ptr_eq(&kept.identity, &row.identity);
        let known = self.containers.next_slot(is_same);
        let new = || Container::new(row, now);
        let search = || self.containers.slot(&row.identity.labels, frame, new);
        let Some(at) = known.or_else(search) else { return };
        let was_read = self.containers.last(at) + 1 == frame;
        let Some(container) = self.containers.state_mut(at) else { return };
        let before = std::mem::replace(&mut container.counters, now);
        // Of an idle container that was idle before, this frame has the values of the last one.
        let is_still = was_read && before == now && container.limit_cores == row.cpu_limit.cores();
        if std::mem::replace(&mut container.is_still, is_still) && is_still {
            container.update(row, container.rates);
            return self.containers.repeat(at, frame);
        }
        let rates = if was_read { before.rates_until(&now, seconds) } else { Rates::default() };
        container.update(row, rates);
        let values = Measure::ALL.map(|measure| measure.of(&rates, row.cpu_limit.cores()));
        self.containers.set(at, frame, values);
    }

    fn add_pairs(&mut self, waits: &NodeWaits, is_first: bool, seconds: f64) {
        let mut key = std::mem::take(&mut self.key);
        for row in &waits.interference {
            let is_same = |pair: &Pair| {
                Arc::ptr_eq(&pair.victim, &row.victim)
                    && Arc::ptr_eq(&pair.aggressor_namespace, &row.aggressor_namespace)
                    && Arc::ptr_eq(&pair.aggressor_pod, &row.aggressor_pod)
            };
            let known = self.pairs.next_slot(is_same);
            let Some(at) = known.or_else(|| self.pair_slot(row, is_first, &mut key)) else {
                continue;
            };
            let Some(pair) = self.pairs.state_mut(at) else { continue };
            let waited = row.wait_ns.saturating_sub(pair.wait_ns) as f64 / 1e9;
            pair.wait_ns = row.wait_ns;
            let rate = if seconds > 0.0 { waited / seconds } else { 0.0 };
            self.pairs.set(at, self.frame, [Some(rate)]);
        }
        self.key = key;
    }

    /// The slot of a pair, which is found by its names.
    fn pair_slot(
        &mut self,
        row: &InterferenceRow,
        is_first: bool,
        key: &mut String,
    ) -> Option<usize> {
        let InterferenceRow { victim, aggressor_namespace, aggressor_pod, wait_ns } = row;
        key.clear();
        // Writing to a string cannot fail.
        let _ = write!(key, "{}\n{aggressor_namespace}\n{aggressor_pod}", victim.labels);
        let names =
            || (Arc::clone(victim), Arc::clone(aggressor_namespace), Arc::clone(aggressor_pod));
        let new = || {
            let (victim, aggressor_namespace, aggressor_pod) = names();
            // A pair appears with its first wait, which belongs to this frame.
            let wait_ns = if is_first { *wait_ns } else { 0 };
            Pair { victim, aggressor_namespace, aggressor_pod, wait_ns }
        };
        let at = self.pairs.slot(key, self.frame, new)?;
        if let Some(pair) = self.pairs.state_mut(at) {
            (pair.victim, pair.aggressor_namespace, pair.aggressor_pod) = names();
        }
        Some(at)
    }

    fn add_node(&mut self, snapshot: &NodeSnapshot, cpu_times: Vec<CpuTimes>, seconds: f64) {
        let node = &snapshot.node;
        let now = Totals { pressure_ns: node.pressure_waiting_ns, steal_ns: node.steal_ns };
        let before = std::mem::replace(&mut self.totals, now);
        let rate = |before: Option<u64>, now: Option<u64>| {
            Some(now?.saturating_sub(before?) as f64 / 1e9 / seconds).filter(|_| seconds > 0.0)
        };
        let load = self.load.since_last(cpu_times);
        self.cpus = cpus(&node.cpu_info, &load);
        let previous = &self.nodes[position(self.frame - 1)];
        self.nodes[position(self.frame)] = NodeValues {
            pressure: rate(before.pressure_ns, now.pressure_ns).map(|share| share.min(1.0)),
            contention: contention(&snapshot.waits),
            steal: rate(before.steal_ns, now.steal_ns),
            trace: shared(&previous.trace, trace(&snapshot.waits)),
            colocation: Arc::clone(&self.colocation),
            verdicts: Arc::clone(&self.verdicts),
            cpus: shared(&previous.cpus, without_load(&self.cpus)),
        };
    }
}

impl Container {
    fn new(row: &ContainerRow, counters: Counters) -> Self {
        Self {
            identity: Arc::clone(&row.identity),
            counters,
            rates: Rates::default(),
            is_still: false,
            limit_cores: row.cpu_limit.cores(),
            request_cores: row.request_cores,
            cpuset: row.cpuset.clone(),
            gc: row.gc.clone(),
        }
    }

    fn update(&mut self, row: &ContainerRow, rates: Rates) {
        if !Arc::ptr_eq(&self.identity, &row.identity) {
            self.identity = Arc::clone(&row.identity);
        }
        self.rates = rates;
        self.limit_cores = row.cpu_limit.cores();
        self.request_cores = row.request_cores;
        share(&mut self.cpuset, row.cpuset.as_ref());
        share(&mut self.gc, row.gc.as_ref());
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
