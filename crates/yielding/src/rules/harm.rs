//! Harm that best-effort pods do to latency-sensitive pods, from the trace's counters.

use std::collections::HashMap;
use std::time::Duration;

use snapshot::NodeSnapshot;

use super::waits::{PodKey, WaitMeter};

/// Worst harm over one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Harm {
    /// Share of the victim's time (running or waiting for best-effort pods) that it waited, 0 to 1.
    pub lost: f64,
    /// The victim as `namespace/pod`; empty if no pod waited.
    pub victim: String,
}

/// Harm of one interval, by both measures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Harms {
    /// By all waits.
    pub worst: Harm,
    /// By waits up to the victim's CPU request. The waits of a pod's threads add up, and their
    /// number is the choice of its author: so a small request cannot take much CPU from others.
    pub weighed: Harm,
}

/// Default threshold: harm at or above this share is too much.
pub(crate) const HARM_THRESHOLD: f64 = 0.05;

/// Waits below this share of one CPU are noise: kernel threads and timers cause them too.
pub(crate) const MIN_WAIT: f64 = 0.01;

/// Turns counters into harm per reading.
#[derive(Debug, Default)]
pub struct HarmMeter(WaitMeter);

/// Wait and use of one victim since the last reading, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    waited_ns: u64,
    used_ns: u64,
}

impl HarmMeter {
    /// Reads the counters of a snapshot. `is_best_effort` and `request_cores` take a namespace and a
    /// pod name. Returns `None` for the first snapshot, for one without new counters, and while
    /// nothing is traced.
    ///
    /// Waits for pods that the trace sums up as `other` are not counted.
    pub fn read(
        &mut self,
        snapshot: &NodeSnapshot,
        is_best_effort: impl Fn(&str, &str) -> bool,
        request_cores: impl Fn(&str, &str) -> f64,
    ) -> Option<Harms> {
        let reading = self.0.read(
            snapshot,
            |victim, aggressor| {
                is_best_effort(&aggressor.0, &aggressor.1) && !is_best_effort(&victim.0, &victim.1)
            },
            |namespace, pod| !is_best_effort(namespace, pod),
        )?;
        let mut shares: HashMap<&PodKey, Share> = HashMap::new();
        for (victim, _, waited_ns) in &reading.waits {
            shares.entry(victim).or_default().waited_ns += waited_ns;
        }
        for (pod, share) in &mut shares {
            share.used_ns = reading.used_ns.get(*pod).copied().unwrap_or_default();
        }
        let all = worst(&shares, reading.elapsed);
        for (pod, share) in &mut shares {
            let requested_ns = reading.elapsed.as_nanos() as f64 * request_cores(&pod.0, &pod.1);
            share.waited_ns = share.waited_ns.min(requested_ns as u64);
        }
        Some(Harms { worst: all, weighed: worst(&shares, reading.elapsed) })
    }
}

fn worst(shares: &HashMap<&PodKey, Share>, elapsed: Duration) -> Harm {
    let least = elapsed.as_nanos() as f64 * MIN_WAIT;
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
