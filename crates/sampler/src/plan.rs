//! The read plan: the only place that decides what is read of a cgroup, in a tick and between two.
//! Pure functions.

use std::time::Instant;

use kernel_text::CgroupVersion;

use crate::cgroup::PathQuota;
use crate::files::FileSet;
use crate::timing::{Phase, Rechecks, Timing};

/// Past activity of a cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    /// Time of the last read of its counters.
    pub(crate) counters_read: Option<Instant>,
    /// Reading since which nothing has run in it and no counter has moved.
    idle_since: Option<Instant>,
    /// Time of the last read of its slow files.
    pub(crate) slow_read: Option<Instant>,
    /// Time of the last read of its threads.
    pub(crate) threads_read: Option<Instant>,
    /// Whether its user and system time have been read.
    pub(crate) has_usage: bool,
    /// Whether a setting was written since the last read.
    pub(crate) settings_written: bool,
    /// Whether it has, or had, a quota.
    pub(crate) had_quota: bool,
    /// Whether a quota has throttled it since the reading before the last.
    pub(crate) throttle_due: bool,
    /// Quotas inherited at the last read.
    pub(crate) above: PathQuota,
}

impl Activity {
    /// Activity of a cgroup that was never read.
    pub(crate) fn new() -> Self {
        Self {
            counters_read: None,
            idle_since: None,
            slow_read: None,
            threads_read: None,
            has_usage: false,
            settings_written: true,
            had_quota: false,
            throttle_due: true,
            above: PathQuota::default(),
        }
    }

    /// Records a reading of its counters, and whether one had moved since the last.
    pub(crate) fn note(&mut self, now: Instant, has_moved: bool) {
        let unmoved = self.counters_read.filter(|_| !has_moved);
        self.idle_since = unmoved.map(|read| self.idle_since.unwrap_or(read));
        self.counters_read = Some(now);
    }

    /// Whether the cgroup is idle; the only definition of idle.
    pub(crate) fn is_idle(&self, now: Instant, timing: &Timing) -> bool {
        self.idle_since
            .is_some_and(|since| now.saturating_duration_since(since) >= timing.idle_after)
    }

    /// Whether nothing has run in it since this earlier reading.
    fn has_been_idle_since(&self, read: Instant) -> bool {
        self.idle_since.is_some_and(|since| since < read)
    }

    /// Whether it was read after all its files must have existed.
    pub(crate) fn is_complete(&self, found: Instant, timing: &Timing) -> bool {
        self.counters_read
            .is_some_and(|read| read.saturating_duration_since(found) >= timing.complete_after)
    }

    /// Whether a container's usage file may still appear: the container is new, and a runtime
    /// creates the cgroup in one v1 hierarchy after the other.
    pub(crate) fn is_usage_pending(&self, found: Instant, now: Instant, timing: &Timing) -> bool {
        !self.has_usage && now.saturating_duration_since(found) < timing.complete_after
    }
}

/// Inputs of the plan from a cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched<'a> {
    pub(crate) files: FileSet,
    /// Whether it is an ancestor of a kubepods root.
    pub(crate) is_above_root: bool,
    pub(crate) phase: Phase,
    pub(crate) found: Instant,
    pub(crate) activity: &'a Activity,
    /// Quotas inherited now.
    pub(crate) above: PathQuota,
    /// Activity of the parent cgroup.
    pub(crate) parent: Option<&'a Activity>,
}

/// Reason for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A tick.
    Tick,
    /// Between two ticks: a new cgroup is shown as soon as it has a name and usage.
    BetweenTicks,
    /// The cgroup may be about to disappear.
    LastRead,
}

/// Inputs of the plan from the tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    pub(crate) version: CgroupVersion,
    /// Whether inotify reports every write to a setting.
    pub(crate) sees_settings: bool,
    pub(crate) rechecks: Rechecks,
}

/// Condition for a read of `cpu.stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatRead {
    Always,
    /// If something has run since the last reading.
    IfRun,
    /// If there is a quota.
    IfQuota,
}

impl StatRead {
    /// Whether the values that were read before `cpu.stat` fulfill the condition.
    pub(crate) fn is_due(self, has_run: bool, has_quota: bool) -> bool {
        match self {
            Self::Always => true,
            Self::IfRun => has_run,
            Self::IfQuota => has_quota,
        }
    }
}

/// Files to read of one cgroup.
///
/// Two conditions depend on values of the same reading, so
/// [`TickReading::read`](crate::reading::TickReading::read) resolves them: [`StatRead`], and on v1
/// `cpuacct.stat`, which is read once the usage has reached
/// [`LastUsage::modes_due_ns`](crate::reading::LastUsage::modes_due_ns).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    /// Whether to read its counters; otherwise they are unchanged.
    pub(crate) counters: bool,
    /// Quota, period and weight.
    pub(crate) settings: bool,
    pub(crate) stat: StatRead,
    /// Whether to read `cpu.stat.local`: throttling by ancestors' quotas may have grown.
    pub(crate) local: bool,
    /// Memory, pressure and effective CPUs.
    pub(crate) slow: bool,
    pub(crate) threads: bool,
}

/// Decides what to read of this cgroup now.
pub(crate) fn read_plan(
    cgroup: &Watched<'_>,
    occasion: Occasion,
    clock: &Clock,
    timing: &Timing,
) -> ReadPlan {
    let Watched { files, is_above_root, phase, found, activity, above, parent } = *cgroup;
    let now = clock.now;
    let is_container = files == FileSet::Container;
    let is_scheduled = is_container && occasion == Occasion::Tick;
    let is_idle_recheck = clock.rechecks.idle.contains(phase);
    let settings = activity.settings_written
        || is_idle_recheck
        || !clock.sees_settings
        || !activity.is_complete(found, timing);
    let is_idle = activity.is_idle(now, timing);
    // The pod's usage includes its containers', and the inherited quotas cover all effects of the
    // pod's quota on them.
    let is_unchanged =
        is_idle && parent.is_some_and(|pod| pod.is_idle(now, timing)) && activity.above == above;
    let counters = match occasion {
        Occasion::Tick => !(is_container && is_unchanged) || settings,
        // A new cgroup inherits the current quotas of those above the kubepods root.
        Occasion::BetweenTicks => {
            let is_new = activity.counters_read.is_none();
            let is_pending = is_container && activity.is_usage_pending(found, now, timing);
            is_new || is_pending || is_above_root
        }
        Occasion::LastRead => true,
    };
    let stat = match (clock.version, files) {
        // This file also contains the usage.
        (CgroupVersion::V2, FileSet::Pod | FileSet::Container) => StatRead::Always,
        _ if !activity.had_quota && activity.counters_read.is_some() => StatRead::IfQuota,
        _ if is_idle => StatRead::IfRun,
        _ => StatRead::Always,
    };
    let has_throttled_above = activity.above.throttled_ns != above.throttled_ns;
    let is_due = |read: Option<Instant>| {
        let is_long = |read| activity.has_been_idle_since(read);
        read.is_none_or(|read| {
            let recheck = if is_long(read) { timing.idle_recheck } else { timing.recheck };
            now.saturating_duration_since(read) >= recheck
        })
    };
    let is_recheck = |read| match activity.has_been_idle_since(read) {
        true => is_idle_recheck,
        false => clock.rechecks.all.contains(phase),
    };
    // The base of its later values, also if an ancestor gets a quota later.
    let is_first = activity.counters_read.is_none();
    let is_throttle_due =
        activity.throttle_due || has_throttled_above || occasion == Occasion::LastRead;
    ReadPlan {
        counters,
        settings,
        stat,
        // The file changes when a throttle ends, together with the count of the quota that
        // throttled. It is read once more in the next tick: that moment may lie between the reads
        // of the pod and of its container.
        local: is_container && (is_first || above.had_quota && is_throttle_due),
        slow: is_scheduled && activity.slow_read.is_none_or(is_recheck),
        threads: is_scheduled && is_due(activity.threads_read),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const EVERYTHING: ReadPlan = ReadPlan {
        counters: true,
        settings: true,
        stat: StatRead::Always,
        local: true,
        slow: true,
        threads: true,
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A cgroup that was read each second up to `now`, idle for the last `idle` seconds.
    fn read_each_second(start: Instant, now: u64, idle: u64) -> Activity {
        let mut activity =
            Activity { settings_written: false, throttle_due: false, ..Activity::new() };
        for second in 0..now {
            activity.note(start + seconds(second), second + idle < now);
        }
        activity.slow_read = Some(start + seconds(now - 1));
        activity.threads_read = activity.slow_read;
        activity
    }

    /// The plan in a tick without rechecks; the parent has been idle for `parent_idle` seconds.
    fn plan(
        version: CgroupVersion,
        files: FileSet,
        activity: &Activity,
        parent_idle: u64,
    ) -> ReadPlan {
        plan_on(Occasion::Tick, version, files, activity, parent_idle, |_| {})
    }

    /// The same on any occasion, after `change` of the inputs.
    fn plan_on(
        occasion: Occasion,
        version: CgroupVersion,
        files: FileSet,
        activity: &Activity,
        parent_idle: u64,
        change: impl FnOnce(&mut Watched<'_>),
    ) -> ReadPlan {
        let (start, timing) = (Instant::now(), Timing::default());
        let offset = seconds(100);
        let now = start + offset;
        let mut rechecks = Rechecks::new(start);
        // A tick of zero length, which contains no phase.
        rechecks.advance(now, &timing);
        rechecks.advance(now, &timing);
        let clock = Clock { now, version, sees_settings: true, rechecks };
        let parent = read_each_second(now - seconds(30), 30, parent_idle);
        let mut watched = Watched {
            files,
            is_above_root: false,
            phase: 0,
            found: now - seconds(30),
            activity,
            above: PathQuota::default(),
            parent: Some(&parent),
        };
        change(&mut watched);
        read_plan(&watched, occasion, &clock, &timing)
    }

    fn container(idle: u64) -> Activity {
        let activity = read_each_second(Instant::now() + seconds(70), 30, idle);
        Activity { had_quota: true, ..activity }
    }

    #[test]
    fn what_is_read_follows_from_activity() {
        use FileSet::{Bandwidth, Container, Pod};
        use StatRead::{Always, IfQuota, IfRun};
        let nothing = ReadPlan {
            counters: false,
            settings: false,
            stat: IfRun,
            local: false,
            slow: false,
            threads: false,
        };
        let counters = ReadPlan { counters: true, ..nothing };
        let (busy, idle) = (container(0), container(5));
        let unlimited = |activity| Activity { had_quota: false, ..activity };
        let written = Activity { settings_written: true, ..idle };
        let inherits =
            Activity { above: PathQuota { throttled_ns: 1, ..PathQuota::default() }, ..idle };
        let (v1, v2) = (CgroupVersion::V1, CgroupVersion::V2);
        let cases = [
            ("a running container", v1, Container, busy, 0, ReadPlan { stat: Always, ..counters }),
            ("its pod runs", v1, Container, idle, 0, counters),
            ("both are idle", v1, Container, idle, 5, nothing),
            (
                "on v2 cpu.stat holds the usage",
                v2,
                Container,
                idle,
                0,
                ReadPlan { stat: Always, ..counters },
            ),
            (
                "without a quota",
                v1,
                Container,
                unlimited(busy),
                0,
                ReadPlan { stat: IfQuota, ..counters },
            ),
            (
                "a setting was written",
                v1,
                Container,
                written,
                5,
                ReadPlan { settings: true, ..counters },
            ),
            ("a quota above has throttled", v1, Container, inherits, 5, counters),
            ("a pod is always read", v1, Pod, idle, 5, counters),
            (
                "and so is what is above it",
                v2,
                Bandwidth,
                unlimited(idle),
                5,
                ReadPlan { stat: IfQuota, ..counters },
            ),
        ];
        for (case, version, files, activity, parent_idle, expected) in cases {
            assert_eq!(plan(version, files, &activity, parent_idle), expected, "{case}");
        }
        assert_eq!(plan(v1, Container, &Activity::new(), 5), EVERYTHING, "what is new");
    }

    #[test]
    fn between_ticks_only_new_cgroups_and_those_above_the_root_are_read() {
        use FileSet::{Bandwidth, Container, Pod};
        let running = container(0);
        let used = Activity { has_usage: true, ..running };
        let never_read = Activity::new();
        for (case, files, activity, age, is_above_root, expected) in [
            ("what runs waits for its tick", Container, running, 5, false, false),
            ("a usage file may still appear", Container, running, 4, false, true),
            ("it has appeared", Container, used, 4, false, false),
            ("a pod has no such file", Pod, running, 4, false, false),
            ("what was never read", Pod, never_read, 5, false, true),
            ("a quota that new cgroups inherit", Bandwidth, used, 5, true, true),
            ("one of the kubelet", Bandwidth, used, 5, false, false),
        ] {
            let change = |watched: &mut Watched<'_>| {
                watched.found += seconds(30 - age);
                watched.is_above_root = is_above_root;
            };
            let version = CgroupVersion::V1;
            let plan = plan_on(Occasion::BetweenTicks, version, files, &activity, 0, change);
            assert_eq!(
                (plan.counters, plan.slow, plan.threads),
                (expected, false, false),
                "{case}"
            );
        }
    }

    #[test]
    fn a_last_read_includes_throttling_by_ancestors() {
        let idle = container(5);
        let quota = PathQuota { had_quota: true, ..PathQuota::default() };
        let idle = Activity { above: quota, slow_read: None, threads_read: None, ..idle };
        let on = |occasion, files| {
            let limited = |watched: &mut Watched<'_>| watched.above = quota;
            plan_on(occasion, CgroupVersion::V2, files, &idle, 5, limited)
        };
        let last = on(Occasion::LastRead, FileSet::Container);
        assert_eq!(
            (last.counters, last.local, last.slow, last.threads),
            (true, true, false, false)
        );
        let tick = on(Occasion::Tick, FileSet::Container);
        assert_eq!(
            (tick.counters, tick.local, tick.slow, tick.threads),
            (false, false, true, true)
        );
        assert!(!on(Occasion::LastRead, FileSet::Pod).local, "only containers have the file");
    }

    #[test]
    fn idle_is_a_time_at_any_interval() {
        let (start, timing) = (Instant::now(), Timing::default());
        for millis in [100, 250, 1000, 1500, 60_000] {
            let mut activity = Activity::new();
            let interval = Duration::from_millis(millis);
            activity.note(start, true);
            let mut now = start;
            while now < start + timing.idle_after {
                assert!(
                    !activity.is_idle(now, &timing),
                    "every {millis} ms, after {:?}",
                    now - start
                );
                now += interval;
                activity.note(now, false);
            }
            assert!(activity.is_idle(now, &timing), "every {millis} ms");
            activity.note(now + interval, true);
            assert!(!activity.is_idle(now + interval * 2, &timing));
        }
    }
}
