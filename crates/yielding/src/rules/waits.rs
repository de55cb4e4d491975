//! Deltas of the trace's counters: who waited for whom, and CPU use, since the last reading.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snapshot::{NodeSnapshot, TraceMode};

use super::usage::ContainerUsage;

/// Namespace and name of a pod.
pub(crate) type PodKey = (Arc<str>, Arc<str>);

/// Minimum length of a reading. The trace publishes at its own pace, once a second: over shorter
/// intervals the waits of one second would alternate with none.
const SHORTEST: Duration = Duration::from_secs(2);

/// Reads counters of waits and of CPU use.
#[derive(Debug, Default)]
pub(crate) struct WaitMeter {
    waits: HashMap<(PodKey, PodKey), u64>,
    usage: ContainerUsage,
    read_at: Option<Instant>,
}

/// Deltas since the last reading.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) elapsed: Duration,
    /// Victim, aggressor, nanoseconds.
    pub(crate) waits: Vec<(PodKey, PodKey, u64)>,
    /// CPU time, nanoseconds.
    pub(crate) used_ns: HashMap<PodKey, u64>,
}

impl WaitMeter {
    /// Reads the pairs that `counts_pair` accepts and the use of pods that `counts_use` accepts.
    /// Returns `None` for the first snapshot, for one without new counters, and while nothing is
    /// traced.
    pub(crate) fn read(
        &mut self,
        snapshot: &NodeSnapshot,
        counts_pair: impl Fn(&PodKey, &PodKey) -> bool,
        counts_use: impl Fn(&str, &str) -> bool,
    ) -> Option<Reading> {
        let mode = snapshot.waits.trace.as_ref()?.mode;
        if mode == TraceMode::Detached {
            *self = Self::default();
            return None;
        }
        let elapsed = self.elapsed(snapshot, mode)?;
        let first = self.read_at.is_none();
        self.read_at = snapshot.read_at;
        let waits = self.waits(snapshot, counts_pair);
        let used_ns = self.usage(snapshot, counts_use);
        (!first).then_some(Reading { elapsed, waits, used_ns })
    }

    /// Time since the last reading; `None` if it is too early to read again. A trace in bursts
    /// reports once per cycle, so one reading covers a whole cycle.
    fn elapsed(&self, snapshot: &NodeSnapshot, mode: TraceMode) -> Option<Duration> {
        let read_at = snapshot.read_at?;
        let Some(last) = self.read_at else { return Some(Duration::ZERO) };
        let elapsed = read_at.checked_duration_since(last).filter(|time| !time.is_zero())?;
        let cycle = match mode {
            TraceMode::Bursts { one_of } => Duration::from_secs(one_of.into()),
            TraceMode::Continuous | TraceMode::Detached => Duration::ZERO,
        }
        .max(SHORTEST);
        // Half a tick of tolerance: a snapshot that comes slightly early counts as in time.
        (elapsed + snapshot.interval / 2 >= cycle).then_some(elapsed)
    }

    fn waits(
        &mut self,
        snapshot: &NodeSnapshot,
        counts: impl Fn(&PodKey, &PodKey) -> bool,
    ) -> Vec<(PodKey, PodKey, u64)> {
        let mut totals = HashMap::with_capacity(self.waits.len());
        let mut gained = Vec::new();
        for row in &snapshot.waits.interference {
            let victim = key(&row.victim.namespace, &row.victim.pod);
            let aggressor = (Arc::clone(&row.aggressor_namespace), Arc::clone(&row.aggressor_pod));
            if !counts(&victim, &aggressor) {
                continue;
            }
            let pair = (victim, aggressor);
            // A pair that was not there before began at 0, unless this is the first reading.
            let before = self.waits.get(&pair).copied().unwrap_or_default();
            let waited_ns = row.wait_ns.saturating_sub(before);
            gained.push((pair.0.clone(), pair.1.clone(), waited_ns));
            totals.insert(pair, row.wait_ns);
        }
        self.waits = totals;
        gained
    }

    fn usage(
        &mut self,
        snapshot: &NodeSnapshot,
        counts: impl Fn(&str, &str) -> bool,
    ) -> HashMap<PodKey, u64> {
        let mut by_pod: HashMap<PodKey, u64> = HashMap::new();
        for (row, used_ns) in self.usage.read(&snapshot.containers) {
            let (namespace, pod) = (&row.identity.namespace, &row.identity.pod);
            if counts(namespace, pod) {
                *by_pod.entry(key(namespace, pod)).or_default() += used_ns;
            }
        }
        by_pod
    }
}

pub(crate) fn key(namespace: &str, pod: &str) -> PodKey {
    (namespace.into(), pod.into())
}
