//! The read plan: the only place that decides what is read of a cgroup, in a tick and between two.
//! Pure functions.

use std::time::{Duration, Instant};

use kernel_text::CgroupVersion;

use crate::cgroup::PathQuota;
use crate::files::{FileSet, Keeping};
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
    /// Time of the last read of its memory and effective CPUs.
    pub(crate) memory_read: Option<Instant>,
    /// Time of the last read of all its slow files.
    pub(crate) rare_read: Option<Instant>,
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
            memory_read: None,
            rare_read: None,
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
        self.is_idle_for(timing.idle_after, now)
    }

    fn is_idle_for(&self, time: Duration, now: Instant) -> bool {
        self.idle_since.is_some_and(|since| now.saturating_duration_since(since) >= time)
    }

    /// Whether nothing has run in it since this earlier reading.
    fn has_been_idle_since(&self, read: Instant) -> bool {
        self.idle_since.is_some_and(|since| since < read)
    }

    /// Files of a read of its slow files now.
    fn slow_files_due(&self, now: Instant, timing: &Timing) -> SlowRead {
        // The others may be read a tick earlier than their interval says.
        let is_due = |read: Option<Instant>, interval| {
            let age = |read| now.saturating_duration_since(read) + timing.recheck / 2;
            read.is_none_or(|read| age(read) >= interval)
        };
        // A new series has no value.
        if self.slow_read.is_none() || is_due(self.rare_read, timing.rare_recheck) {
            SlowRead::All
        } else if is_due(self.memory_read, timing.memory_recheck) {
            SlowRead::Memory
        } else {
            SlowRead::Often
        }
    }

    /// Records a read of these slow files; returns the time of the last read of its child cgroups,
    /// which are read each time if there are any, and looked for with the memory.
    pub(crate) fn note_slow(
        &mut self,
        files: SlowRead,
        has_children: bool,
        now: Instant,
    ) -> Option<Instant> {
        let often = self.slow_read.replace(now);
        let memory = if files >= SlowRead::Memory { self.memory_read.replace(now) } else { None };
        if files == SlowRead::All {
            self.rare_read = Some(now);
        }
        if has_children { often } else { memory }
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

/// Slow files of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SlowRead {
    /// Pressure, and the number of tasks.
    Often,
    /// The same, memory and effective CPUs.
    Memory,
    /// The same, the memory limit and the memory of each NUMA node.
    All,
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
    pub(crate) slow: Option<SlowRead>,
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
            let recheck = if is_long(read) { timing.idle_scan } else { timing.recheck };
            now.saturating_duration_since(read) >= recheck
        })
    };
    // The last read of the memory must come after the last run.
    let is_recheck = match activity.memory_read {
        Some(read) if activity.has_been_idle_since(read) => is_idle_recheck,
        _ => clock.rechecks.all.contains(phase),
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
        slow: (is_scheduled && (activity.slow_read.is_none() || is_recheck))
            .then(|| activity.slow_files_due(now, timing)),
        threads: is_scheduled && is_due(activity.threads_read),
    }
}

/// Whether there is nothing to read of a container while nothing runs in its pod, except at its
/// rechecks.
pub(crate) fn is_asleep(
    container: &Activity,
    pod: &Activity,
    plan: &ReadPlan,
    now: Instant,
    timing: &Timing,
) -> bool {
    let is_long_idle = |activity: &Activity| activity.is_idle_for(timing.close_after, now);
    // After the last run.
    let is_read = |read: Option<Instant>| read.is_some_and(|it| container.has_been_idle_since(it));
    let nothing = !plan.counters && plan.slow.is_none() && !plan.threads;
    nothing
        && is_read(container.memory_read)
        && is_read(container.threads_read)
        && is_long_idle(container)
        && is_long_idle(pod)
}

/// Decides which files of this cgroup stay open: at most those of `most`.
///
/// The counters of an idle container are not read while its pod is idle, and no other file of an
/// idle cgroup is read in each tick.
pub(crate) fn kept_files(
    cgroup: &Watched<'_>,
    most: Keeping,
    now: Instant,
    timing: &Timing,
) -> Keeping {
    let is_long_idle = |activity: &Activity| activity.is_idle_for(timing.close_after, now);
    let runs = !is_long_idle(cgroup.activity);
    let is_read_each_tick = match cgroup.files {
        // There are few.
        FileSet::Bandwidth => return Keeping::ALL,
        FileSet::Pod => true,
        FileSet::Container => runs || !cgroup.parent.is_some_and(is_long_idle),
    };
    Keeping {
        counters: most.counters && is_read_each_tick,
        running: most.running && runs,
        settings: most.settings && runs,
        slow: most.slow && runs,
    }
}

#[cfg(test)]
mod tests;
