//! CPU time of a sandbox whose threads are in the cgroup of the pod itself: gVisor joins it, and a
//! virtual machine may be alone in it.
//!
//! Pure: time and counters are arguments.

use std::time::{Duration, Instant};

use super::Deltas;
use crate::reading::{Modes, Value};
use crate::series::SeriesId;

/// Time over which a sandbox must be busy to be shown: the counters of a pod and of its containers
/// are read some milliseconds apart.
const BUSY_FOR: Duration = Duration::from_secs(5);

/// Whether a sandbox that used this much CPU in this time does more than a pause process, which
/// sleeps: at least 1 % of a CPU.
pub(crate) fn is_busy(used_ns: u64, time: Duration) -> bool {
    time >= Duration::from_secs(1) && u128::from(used_ns) * 100 >= time.as_nanos()
}

/// CPU time of a pod's cgroup beyond that of the cgroups below it, not counted yet.
#[derive(Debug, Default)]
pub(crate) struct PodSandbox {
    pub(crate) series: Option<SeriesId>,
    /// Begin of the time over which it must be busy.
    since: Option<Instant>,
    usage: Uncounted,
    user: Uncounted,
    system: Uncounted,
    throttled_ns: Option<u64>,
    /// v1: user and system time of the pod at the last reading.
    modes: Option<Modes>,
}

/// Nanoseconds; below zero if a container was read later than its pod. `None` if never read.
#[derive(Debug, Default, Clone, Copy)]
struct Uncounted(Option<i64>);

impl Uncounted {
    fn change(&mut self, by: Option<u64>, sign: i64) {
        if let Some(by) = by.and_then(|by| i64::try_from(by).ok()) {
            self.0 = Some(self.0.unwrap_or(0).saturating_add(sign * by));
        }
    }

    /// Takes the part above zero; a remainder below zero stays.
    fn take(&mut self) -> Value<u64> {
        let Some(uncounted) = &mut self.0 else { return Value::NotRead };
        let counted = (*uncounted).max(0);
        *uncounted -= counted;
        Value::Read(counted.unsigned_abs())
    }
}

impl PodSandbox {
    /// Adds what the pod's cgroup has used. Its quota throttles the sandbox from above, as do those
    /// of its ancestors.
    pub(crate) fn add(&mut self, pod: &Deltas) {
        self.change(pod, 1);
        let own_ns = pod.cfs.read().map(|cfs| cfs.throttled_ns).filter(|ns| *ns > 0);
        if let Some(above_ns) = own_ns.or(pod.ancestor_ns) {
            let all_ns = above_ns + own_ns.and(pod.ancestor_ns).unwrap_or(0);
            *self.throttled_ns.get_or_insert(0) += all_ns;
        }
    }

    /// v1: adds the pod's user and system time, which is not among its counters.
    pub(crate) fn add_modes(&mut self, modes: Modes) {
        let last = self.modes.replace(modes).unwrap_or(modes);
        let grown = |now: Option<u64>, last: Option<u64>| Some(now?.saturating_sub(last?));
        self.user.change(grown(modes.user_ns, last.user_ns), 1);
        self.system.change(grown(modes.system_ns, last.system_ns), 1);
    }

    /// Takes off what a cgroup below the pod's has used.
    pub(crate) fn take_off(&mut self, container: &Deltas) {
        self.change(container, -1);
    }

    fn change(&mut self, deltas: &Deltas, sign: i64) {
        self.usage.change(deltas.usage_ns.read(), sign);
        self.user.change(deltas.user_ns.read(), sign);
        self.system.change(deltas.system_ns.read(), sign);
    }

    /// Whether it is busy. What it has used before a time in which it is not is dropped.
    pub(crate) fn is_busy(&mut self, now: Instant) -> bool {
        let time = now.saturating_duration_since(*self.since.get_or_insert(now));
        if time < BUSY_FOR {
            return false;
        }
        let used_ns = self.usage.0.and_then(|used| u64::try_from(used).ok()).unwrap_or(0);
        let is_busy = is_busy(used_ns, time);
        if !is_busy {
            *self = Self { since: Some(now), modes: self.modes, ..Self::default() };
        }
        is_busy
    }

    /// The increments since the last call.
    pub(crate) fn settle(&mut self) -> Deltas {
        Deltas {
            usage_ns: self.usage.take(),
            user_ns: self.user.take(),
            system_ns: self.system.take(),
            ancestor_ns: self.throttled_ns.take(),
            ..Deltas::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use snapshot::CfsTotals;

    use super::*;

    fn used(millis: u64) -> Deltas {
        let used = Value::Read(millis * 1_000_000);
        Deltas { usage_ns: used, user_ns: used, ..Deltas::default() }
    }

    #[test]
    fn what_the_containers_use_is_not_the_sandboxs() {
        let mut sandbox = PodSandbox::default();
        sandbox.add(&used(100));
        sandbox.take_off(&used(30));
        assert_eq!(sandbox.settle(), used(70));
        // Read after its pod: the rest is taken off later.
        sandbox.add(&used(10));
        sandbox.take_off(&used(15));
        assert_eq!(sandbox.settle().usage_ns, Value::Read(0));
        sandbox.add(&used(10));
        assert_eq!(sandbox.settle().usage_ns, Value::Read(5_000_000));
    }

    #[test]
    fn a_sandbox_is_busy_from_a_hundredth_of_a_cpu_on() {
        let (mut sandbox, start) = (PodSandbox::default(), Instant::now());
        assert!(!sandbox.is_busy(start));
        sandbox.add(&used(49));
        assert!(!sandbox.is_busy(start + BUSY_FOR));
        sandbox.add(&used(50));
        assert!(!sandbox.is_busy(start + BUSY_FOR), "what came before is dropped");
        assert!(sandbox.is_busy(start + BUSY_FOR * 2));
        assert_eq!(sandbox.settle().usage_ns, Value::Read(50_000_000));
    }

    #[test]
    fn the_pods_quota_and_those_above_throttle_it() {
        let mut sandbox = PodSandbox::default();
        sandbox.add(&used(1));
        assert_eq!(sandbox.settle().ancestor_ns, None);
        let cfs = Value::Read(CfsTotals { throttled_ns: 3, ..CfsTotals::default() });
        sandbox.add(&Deltas { cfs, ..used(1) });
        assert_eq!(sandbox.settle().ancestor_ns, Some(3));
        sandbox.add(&Deltas { cfs, ancestor_ns: Some(4), ..used(1) });
        sandbox.add(&Deltas { ancestor_ns: Some(5), ..used(1) });
        assert_eq!(sandbox.settle().ancestor_ns, Some(12));
    }

    #[test]
    fn user_and_system_time_of_v1_count_from_the_first_reading() {
        let mut sandbox = PodSandbox::default();
        let modes = |user| Modes { user_ns: Some(user), system_ns: Some(0) };
        sandbox.add_modes(modes(50));
        sandbox.add_modes(modes(70));
        let settled = sandbox.settle();
        assert_eq!((settled.user_ns, settled.system_ns), (Value::Read(20), Value::Read(0)));
    }
}
