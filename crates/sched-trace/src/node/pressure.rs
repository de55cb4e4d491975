//! Contention-only pressure: the share of wall-clock time in which at least one thread waited for a
//! CPU although its own quota allowed it to run. PSI cannot give it, because PSI counts throttled
//! threads as waiting.
//!
//! The trace counts thread time, not its union over threads, so the share is known as a range.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use snapshot::{ContainerRow, NodeWaits, PressureRow, PressureScope, TraceMode};

/// Namespace and name of a pod.
type PodKey = (Arc<str>, Arc<str>);

/// Turns the trace's counters into pressure per poll.
///
/// Waits in progress count a quarter of a second late, and those of throttled run queues when they
/// end, so a reading may include the start of a wait from the interval before. Time without a known cause is in neither bound: it may have been throttling.
#[derive(Debug, Default)]
pub(super) struct PressureMeter {
    /// By the labels of the container's series.
    containers: HashMap<Box<str>, Counted>,
    /// By victim and aggressor, nanoseconds.
    pairs: HashMap<(PodKey, PodKey), u64>,
    read_at: Option<Instant>,
    /// Sums of the bounds since the start, nanoseconds.
    totals: BTreeMap<PressureScope, (u64, u64)>,
}

impl PressureMeter {
    /// Reads the counters of one poll. `now` is the time up to which they count, and `containers`
    /// the containers of the latest snapshot. Returns nothing for the first reading, and nothing
    /// unless waits are traced all the time: counts of a trace in bursts are estimates, not bounds.
    pub(super) fn read(
        &mut self,
        now: Instant,
        waits: &NodeWaits,
        containers: &[ContainerRow],
    ) -> Vec<PressureRow> {
        let mode = waits.trace.as_ref().map(|trace| trace.mode);
        if mode != Some(TraceMode::Continuous) {
            *self = Self { totals: std::mem::take(&mut self.totals), ..Self::default() };
            return Vec::new();
        }
        let elapsed = self.read_at.and_then(|last| now.checked_duration_since(last));
        self.read_at = Some(now);
        let gained = self.gained(waits, containers);
        let elapsed = elapsed.filter(|time| !time.is_zero());
        elapsed.map_or(Vec::new(), |elapsed| self.rows(&gained, elapsed.as_nanos() as f64))
    }

    /// Waits since the last reading.
    fn gained(&mut self, waits: &NodeWaits, containers: &[ContainerRow]) -> Gained {
        let (mut now, mut gained) = (HashMap::new(), Gained::default());
        for row in containers.iter().filter(|row| row.live) {
            let counted = Counted::of(row, waits);
            let before = self.containers.get(&row.identity.labels).copied();
            gained.add_container(row, counted, before);
            now.insert(row.identity.labels.clone(), counted);
        }
        self.containers = now;
        let mut pairs = HashMap::with_capacity(self.pairs.len());
        for row in &waits.interference {
            let victim = (row.victim.namespace.as_str().into(), row.victim.pod.as_str().into());
            let aggressor = (Arc::clone(&row.aggressor_namespace), Arc::clone(&row.aggressor_pod));
            let pair = (victim, aggressor);
            // A pair that was not there before began at 0.
            let waited = row.wait_ns.saturating_sub(self.pairs.get(&pair).copied().unwrap_or(0));
            gained.pairs.push((pair.clone(), waited));
            pairs.insert(pair, row.wait_ns);
        }
        self.pairs = pairs;
        gained
    }

    fn rows(&mut self, gained: &Gained, elapsed_ns: f64) -> Vec<PressureRow> {
        let scopes = [PressureScope::Node].into_iter().chain(PressureScope::CLASSES);
        let mut rows = Vec::new();
        for scope in scopes {
            let Some((lower, upper)) = gained.bounds(scope, elapsed_ns) else { continue };
            let total = self.totals.entry(scope).or_default();
            // A share of an interval fits.
            total.0 += (lower * elapsed_ns) as u64;
            total.1 += (upper * elapsed_ns) as u64;
            rows.push(PressureRow { scope, lower_ns: total.0, upper_ns: total.1, lower, upper });
        }
        rows
    }
}

/// Counters of one container at one reading.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    /// Thread time that it waited for something else than a quota.
    contended_ns: u64,
    /// The part in which its own pod ran.
    self_ns: u64,
    threads: Option<u64>,
}

impl Counted {
    fn of(row: &ContainerRow, waits: &NodeWaits) -> Self {
        let waits = waits.containers.get(&row.identity.labels);
        Self {
            contended_ns: waits.map_or(0, |w| w.neighbor_ns + w.self_ns + w.system_ns),
            self_ns: waits.map_or(0, |waits| waits.self_ns),
            threads: row.threads.counted(),
        }
    }
}

/// Waits of one interval.
#[derive(Debug, Default)]
struct Gained {
    containers: Vec<Waited>,
    pods: HashMap<PodKey, Waited>,
    pairs: Vec<((PodKey, PodKey), u64)>,
}

/// Waits of a container, or of a pod, in one interval.
#[derive(Debug, Clone, Default)]
struct Waited {
    qos_class: Box<str>,
    best_effort: bool,
    contended_ns: u64,
    self_ns: u64,
    /// Largest number of threads; `None` if it is unknown: it then bounds nothing.
    threads: Option<u64>,
}

impl Waited {
    fn is_in(&self, scope: PressureScope) -> bool {
        scope.covers(&self.qos_class, self.best_effort)
    }
}

impl Gained {
    fn add_container(&mut self, row: &ContainerRow, now: Counted, before: Option<Counted>) {
        let last = before.unwrap_or_default();
        let waited = Waited {
            qos_class: row.identity.qos_class.as_str().into(),
            best_effort: row.identity.best_effort,
            contended_ns: now.contended_ns.saturating_sub(last.contended_ns),
            self_ns: now.self_ns.saturating_sub(last.self_ns),
            // The larger number at the ends of the interval.
            threads: now.threads.max(last.threads),
        };
        let key = (row.identity.namespace.as_str().into(), row.identity.pod.as_str().into());
        let pod = self.pods.entry(key).or_insert_with(|| Waited {
            qos_class: waited.qos_class.clone(),
            best_effort: waited.best_effort,
            threads: Some(0),
            ..Waited::default()
        });
        pod.self_ns += waited.self_ns;
        pod.threads = pod.threads.zip(waited.threads).map(|(sum, more)| sum + more);
        self.containers.push(waited);
    }

    /// Bounds of the share of the interval in which some thread of the scope waited, 0 to 1; `None`
    /// if it has no containers.
    ///
    /// At most all thread time, if no two waits overlap. At least the largest of these:
    /// - the wait of one container over its threads, since no more threads than it has can wait at
    ///   the same time;
    /// - the waits inside one pod, or inside two pods of the scope, over their threads but one,
    ///   since one of them runs while others wait for it.
    fn bounds(&self, scope: PressureScope, elapsed_ns: f64) -> Option<(f64, f64)> {
        let mut containers = self.containers.iter().filter(|waited| waited.is_in(scope)).peekable();
        containers.peek()?;
        let (mut lower_ns, mut upper_ns) = (0.0_f64, 0.0);
        for waited in containers {
            lower_ns = lower_ns.max(least(waited.contended_ns, waited.threads));
            upper_ns += waited.contended_ns as f64;
        }
        let pods = self.pods.values().filter(|pod| pod.is_in(scope));
        for pod in pods {
            lower_ns = lower_ns.max(least(pod.self_ns, others(pod.threads)));
        }
        for (waited_ns, threads) in self.inside_pairs(scope) {
            lower_ns = lower_ns.max(least(waited_ns, others(threads)));
        }
        let upper = (upper_ns / elapsed_ns).min(1.0);
        Some(((lower_ns / elapsed_ns).min(upper), upper))
    }

    /// Wait of two pods for each other and for themselves, with their threads.
    fn inside_pairs(
        &self,
        scope: PressureScope,
    ) -> impl Iterator<Item = (u64, Option<u64>)> + use<'_> {
        let mut mutual: BTreeMap<(&PodKey, &PodKey), u64> = BTreeMap::new();
        for ((victim, aggressor), waited_ns) in &self.pairs {
            let pair = (victim.min(aggressor), victim.max(aggressor));
            *mutual.entry(pair).or_default() += waited_ns;
        }
        mutual.into_iter().filter_map(move |((a, b), waited_ns)| {
            let (a, b) = (self.pods.get(a)?, self.pods.get(b)?);
            let is_covered = a.is_in(scope) && b.is_in(scope);
            let threads = a.threads.zip(b.threads).map(|(a, b)| a + b);
            is_covered.then_some((waited_ns + a.self_ns + b.self_ns, threads))
        })
    }
}

/// Least time in which one of at most `threads` waits, if they waited this long together.
fn least(waited_ns: u64, threads: Option<u64>) -> f64 {
    threads.map_or(0.0, |threads| waited_ns as f64 / threads.max(1) as f64)
}

/// All threads but the one that runs.
fn others(threads: Option<u64>) -> Option<u64> {
    threads.map(|threads| threads.saturating_sub(1))
}

#[cfg(test)]
mod tests;
