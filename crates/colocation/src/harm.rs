//! Harm that best-effort pods do to latency-sensitive pods, from the trace's counters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use snapshot::{NodeSnapshot, TraceMode};

/// Worst harm over one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Harm {
    /// Share of the victim's time (running or waiting for best-effort pods) that it waited, 0 to 1.
    pub lost: f64,
    /// The victim as `namespace/pod`; empty if no pod waited.
    pub victim: String,
}

/// Waits below this share of one CPU are noise: kernel threads and timers cause them too.
const LEAST_WAIT: f64 = 0.01;

/// Minimum length of a reading. The trace publishes at its own pace, once a second: over shorter
/// intervals the waits of one second would alternate with none.
const SHORTEST: Duration = Duration::from_secs(2);

/// Turns counters into harm per reading.
#[derive(Debug, Default)]
pub struct HarmMeter {
    waits: HashMap<(Key, Key), u64>,
    usage: HashMap<Key, u64>,
    read_at: Option<std::time::Instant>,
}

/// Namespace and name of a pod.
type Key = (Arc<str>, Arc<str>);

/// Wait and use of one victim since the last reading, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    waited_ns: u64,
    used_ns: u64,
}

impl HarmMeter {
    /// Reads the counters of a snapshot. `is_best_effort` takes a namespace and a pod name. Returns
    /// `None` for the first snapshot, for one without new counters, and while nothing is traced.
    ///
    /// Waits for pods that the trace lumps together as `other` count for nobody.
    pub fn read(
        &mut self,
        snapshot: &NodeSnapshot,
        is_best_effort: impl Fn(&str, &str) -> bool,
    ) -> Option<Harm> {
        let mode = snapshot.waits.trace.as_ref()?.mode;
        if mode == TraceMode::Detached {
            *self = Self::default();
            return None;
        }
        let elapsed = self.elapsed(snapshot, mode)?;
        let first = self.read_at.is_none();
        self.read_at = snapshot.read_at;
        let mut shares: HashMap<Key, Share> = HashMap::new();
        self.add_waits(snapshot, &is_best_effort, &mut shares);
        self.add_usage(snapshot, &is_best_effort, &mut shares);
        (!first).then(|| worst(&shares, elapsed))
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

    fn add_waits(
        &mut self,
        snapshot: &NodeSnapshot,
        is_best_effort: &impl Fn(&str, &str) -> bool,
        shares: &mut HashMap<Key, Share>,
    ) {
        let mut waits = HashMap::with_capacity(self.waits.len());
        for row in &snapshot.waits.interference {
            let victim = key(&row.victim.namespace, &row.victim.pod);
            let aggressor = (Arc::clone(&row.aggressor_namespace), Arc::clone(&row.aggressor_pod));
            if !is_best_effort(&aggressor.0, &aggressor.1) || is_best_effort(&victim.0, &victim.1) {
                continue;
            }
            let pair = (victim, aggressor);
            // A pair that was not there before began at 0, unless this is the first reading.
            let before = self.waits.get(&pair).copied().unwrap_or_default();
            shares.entry(pair.0.clone()).or_default().waited_ns +=
                row.wait_ns.saturating_sub(before);
            waits.insert(pair, row.wait_ns);
        }
        self.waits = waits;
    }

    fn add_usage(
        &mut self,
        snapshot: &NodeSnapshot,
        is_best_effort: &impl Fn(&str, &str) -> bool,
        shares: &mut HashMap<Key, Share>,
    ) {
        let mut usage: HashMap<Key, u64> = HashMap::with_capacity(self.usage.len());
        for row in &snapshot.containers {
            let (namespace, pod) = (&row.identity.namespace, &row.identity.pod);
            if let Some(used) = row.usage_ns
                && !is_best_effort(namespace, pod)
            {
                *usage.entry(key(namespace, pod)).or_default() += used;
            }
        }
        for (pod, used) in &usage {
            if let Some(share) = shares.get_mut(pod) {
                let before = self.usage.get(pod).copied().unwrap_or_default();
                share.used_ns += used.saturating_sub(before);
            }
        }
        self.usage = usage;
    }
}

fn key(namespace: &str, pod: &str) -> Key {
    (namespace.into(), pod.into())
}

fn worst(shares: &HashMap<Key, Share>, elapsed: Duration) -> Harm {
    let least = elapsed.as_nanos() as f64 * LEAST_WAIT;
    let mut harm = Harm::default();
    for ((namespace, pod), share) in shares {
        let waited = share.waited_ns as f64;
        if waited < least || share.waited_ns == 0 {
            continue;
        }
        let lost = waited / (waited + share.used_ns as f64);
        let victim = format!("{namespace}/{pod}");
        // Equal harm: by name, so that the answer does not depend on the order of the map.
        if lost > harm.lost || (lost == harm.lost && victim < harm.victim) {
            harm = Harm { lost, victim };
        }
    }
    harm
}
