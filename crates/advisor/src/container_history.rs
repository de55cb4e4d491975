//! The history of one container and the facts derived from it.

use std::sync::Arc;
use std::time::Duration;

use analysis::{
    BurstForecast, CollectionHistory, CollectionWindow, Collections, Facts, History, Member,
    Steady, THROTTLED_SHARE, UsageTrace, Window, may_be_throttled_by_ancestor, memory_advice,
};
use api::{CpuAdvice, Language, MemoryAdvice, OBJECTIVE};
use metrics::AdviceRow;
use runtimes::Detector;
use snapshot::{ContainerRow, NodeRow, Quota};

use crate::lost::Lost;
use crate::node_facts::{NodeFacts, at_most_node};
use crate::program::Program;
use crate::spec::spec;
use crate::startup::Startup;
use crate::sums::{Sums, share};
use crate::workloads::Shown;

/// Time in which the estimate of the live set may double after a low, seconds.
const LIVE_SET_SECONDS: f64 = 3600.0;
/// Time after which the lowest memory is taken for the live set: garbage was collected in it.
const LIVE_SET_AFTER: Duration = Duration::from_secs(600);
/// Interval between two evaluations of the displayed figures.
const EVALUATE_EVERY: Duration = Duration::from_secs(60);
/// Required time without throttling before and after a usage trace, which itself spans two seconds.
const UNTHROTTLED: Duration = Duration::from_secs(3);
/// Minimum use of a window that is worth a trace, cores.
const BUSY_CORES: f64 = 0.001;

/// Counters at the last window.
#[derive(Debug, Clone, Copy, Default)]
struct LastCounters {
    used_ns: u64,
    /// Time throttled by its own quota, nanoseconds.
    throttled_ns: u64,
    periods: u64,
    throttled: u64,
    /// Periods throttled by the quota of its pod, if it is the only container of the pod.
    pod_throttled: Option<u64>,
    ancestor_ns: u64,
    /// Wait for other pods, thread-nanoseconds; `None` without the trace.
    neighbor_ns: Option<u64>,
}

impl LastCounters {
    fn of(row: &ContainerRow, pod_throttled: Option<u64>) -> Self {
        let cfs = row.cfs.unwrap_or_default();
        Self {
            used_ns: row.usage_ns.unwrap_or(0),
            throttled_ns: cfs.throttled_ns,
            periods: cfs.periods,
            throttled: cfs.throttled_periods,
            pod_throttled,
            ancestor_ns: row.throttled_ancestor_ns.unwrap_or(0),
            neighbor_ns: row.waits.as_ref().map(|waits| waits.neighbor_ns),
        }
    }
}

impl LastCounters {
    /// Periods in which its own quota or that of its pod throttled it.
    fn throttled_since(&self, then: &Self) -> u64 {
        let of_pod = self.pod_throttled.zip(then.pod_throttled);
        let of_pod = of_pod.map_or(0, |(to, from)| to.saturating_sub(from));
        self.throttled.saturating_sub(then.throttled).max(of_pod)
    }

    /// Time for which its threads waited for other pods, by the trace, thread-nanoseconds.
    fn waited_since(&self, then: &Self) -> u64 {
        match (then.neighbor_ns, self.neighbor_ns) {
            (Some(from), Some(to)) => to.saturating_sub(from),
            _ => 0,
        }
    }
}

/// History of one container.
#[derive(Debug, Default)]
pub(crate) struct ContainerHistory {
    history: History,
    last_counters: Option<LastCounters>,
    sums: Sums,
    /// Own and lowest limit, cores.
    limits: (Option<f64>, Option<f64>),
    lost: Lost,
    /// Whether the agent restricted the pod at the end of the last window.
    was_restricted: bool,
    startup: Startup,
    live_set: Option<f64>,
    /// Total length of the windows.
    watched: Duration,
    /// Value of `watched` at the last evaluation.
    evaluated: Duration,
    /// Time since the last throttling.
    unthrottled: Duration,
    is_busy: bool,
    /// Value of `watched` when the last trace began.
    traced: Option<Duration>,
    /// A trace that becomes valid at this time, unless throttling occurs before.
    learned: Option<(Duration, UsageTrace)>,
    limit: Steady,
    cpu: CpuAdvice,
    program: Program,
    collections: CollectionHistory,
    /// CPU time used since the latest reading of garbage collection, seconds, and whether a quota
    /// throttled the container in that time.
    uncollected: (f64, bool),
    /// Number of the latest interval of garbage collection.
    collected: u64,
}

impl ContainerHistory {
    /// The history of a container that started while the agent ran.
    pub(crate) fn of_a_start() -> Self {
        Self { startup: Startup::begun(), ..Self::default() }
    }

    /// Adds the counts since the last window.
    pub(crate) fn observe(&mut self, row: &ContainerRow, length_ns: u64, node: NodeFacts) {
        self.startup.follow(&row.identity.container_id);
        let now = LastCounters::of(row, node.pod_throttled);
        let Some(then) = self.last_counters.replace(now).filter(|_| length_ns > 0) else { return };
        let own_limit = row.own_limit_cores();
        let has_quota = row.cfs.is_some() && own_limit.is_some();
        let gained = |of: fn(&LastCounters) -> u64| of(&now).saturating_sub(of(&then));
        let used_ns = gained(|last_counters| last_counters.used_ns);
        let ancestor_ns = Some(gained(|last_counters| last_counters.ancestor_ns))
            .filter(|&time_ns| may_be_throttled_by_ancestor(time_ns, used_ns));
        let ancestor_ns = ancestor_ns.unwrap_or(0);
        let cpus = row.cpuset.as_ref().map(|cpuset| cpuset.count).or(node.cpus);
        let lost_ns = node.lost_ns.unwrap_or_else(|| now.waited_since(&then));
        let lost_ns = self.lost.add(lost_ns, used_ns, cpus, length_ns);
        let was_restricted = std::mem::replace(&mut self.was_restricted, node.is_restricted);
        let is_restricted = was_restricted || node.is_restricted;
        // What the agent takes away is no need.
        let lost_ns = if is_restricted { 0 } else { lost_ns };
        let window = Window {
            used_ns,
            lost_ns,
            throttled_ns: gained(|last_counters| last_counters.throttled_ns) + ancestor_ns,
            periods: has_quota.then(|| gained(|last_counters| last_counters.periods)),
            throttled_periods: has_quota.then(|| now.throttled_since(&then)),
            period_ns: row.period_usec().map_or(0, |usec| usec * 1000),
            length_ns,
        };
        let before = self.watched;
        self.watched += Duration::from_nanos(length_ns);
        self.follow_traces(&window);
        self.history.push(&window, own_limit);
        self.follow_limits(row);
        let own_throttled = has_quota.then(|| gained(|last_counters| last_counters.throttled));
        let blamed_ns = if is_restricted { 0 } else { ancestor_ns };
        self.sums.add(&window, own_throttled.unwrap_or(0), blamed_ns);
        self.startup.add(&window);
        self.follow_live_set(row, length_ns);
        self.follow_collections(row, &window);
        let after = Duration::from_secs(node.after_seconds);
        if self.watched - self.evaluated >= EVALUATE_EVERY
            || before < after && self.watched >= after
        {
            self.evaluated = self.watched;
            self.evaluate(node);
        }
    }

    /// Resets throttling by a limit that is no longer in force.
    fn follow_limits(&mut self, row: &ContainerRow) {
        let limits = (row.own_limit_cores(), row.cpu_limit.cores());
        let (own, lowest) = std::mem::replace(&mut self.limits, limits);
        if own != limits.0 {
            self.sums.forget_periods();
            self.startup.forget();
        }
        if lowest != limits.1 {
            self.sums.ancestor_throttled = 0.0;
        }
    }

    /// Time since its last trace began; `None` if a trace would be useless.
    pub(crate) fn untraced_for(&self) -> Option<Duration> {
        let is_worth_it = self.is_busy && self.unthrottled > Duration::ZERO;
        is_worth_it.then(|| self.traced.map_or(Duration::MAX, |at| self.watched - at))
    }

    /// Records that a trace begins.
    pub(crate) fn begin_trace(&mut self) {
        self.traced = Some(self.watched);
    }

    /// Adds a trace, unless throttling has delayed its work.
    pub(crate) fn learn(&mut self, trace: UsageTrace) {
        if self.unthrottled >= UNTHROTTLED {
            self.learned = Some((self.watched + UNTHROTTLED, trace));
        }
    }

    fn follow_traces(&mut self, window: &Window) {
        self.is_busy = window.used_ns as f64 >= window.length_ns as f64 * BUSY_CORES;
        if window.is_throttled() {
            (self.unthrottled, self.learned) = (Duration::ZERO, None);
            return;
        }
        self.unthrottled += Duration::from_nanos(window.length_ns);
        if let Some((_, trace)) = self.learned.take_if(|(from, _)| *from <= self.watched) {
            self.history.learn(trace);
        }
    }

    /// Follows changes of the running program.
    pub(crate) fn detect(&mut self, row: &ContainerRow, detector: &mut Detector) {
        self.program.follow(row, detector);
    }

    /// The current facts, together with the row's settings.
    pub(crate) fn facts(&self, row: &ContainerRow, node: &NodeRow) -> Facts {
        let throttled_share = self.throttled_share(row);
        let memory = self.memory(row);
        let ancestor =
            row.throttled_ancestor_ns.and(share(self.sums.ancestor_throttled, self.sums.seconds));
        Facts {
            container: row.identity.container.clone(),
            spec: row.spec.map(|of_pod| spec(of_pod, &row.identity)),
            cpus: row.cpuset.as_ref().map(|cpuset| cpuset.count),
            node_cpus: node.online_cpus(),
            claims_cpus: row.identity.claims_cpus,
            limit_cores: row.cpu_limit.cores(),
            own_limit_cores: row.own_limit_cores(),
            has_no_quota: row.bandwidth.is_some_and(|bandwidth| bandwidth.quota == Quota::Max),
            pod: None,
            request_cores: row.request_cores,
            throttled_share,
            is_throttled_at_start_only: self.startup.is_throttled_only_then(),
            lost_cores: share(self.sums.lost, self.sums.seconds),
            ancestor_throttled_rate: ancestor,
            memory_limit: row.memory_limit_bytes,
            memory_request: row.memory_request_bytes,
            kernel_release: node.kernel.release.clone(),
            cpu: CpuAdvice {
                windows: self.history.windows(),
                watched_seconds: self.history.watched_seconds(),
                ..self.cpu
            },
            memory,
            runtime: self.program.runtime().cloned(),
            gc: self.measured_collections(row),
            injected: Vec::new(),
            slowed: None,
        }
    }

    /// Observations of the container, for the next ones of its workload.
    pub(crate) fn shown(&self) -> Shown {
        let go = self.program.runtime().filter(|found| found.language == Language::Go);
        let live_set = self.live_set.filter(|_| self.watched >= LIVE_SET_AFTER);
        Shown {
            live_set_bytes: live_set.map(|bytes| bytes as u64),
            go_follows_limit: go.map(|found| found.go_follows_limit),
        }
    }

    /// Forecast of CPU burst; `None` without a limit of its own.
    pub(crate) fn burst_forecast(
        &self,
        row: &ContainerRow,
        after_seconds: u64,
    ) -> Option<BurstForecast> {
        let limit = row.own_limit_cores()?;
        Some(BurstForecast {
            throttled_share: share(self.sums.throttled_with_pod, self.sums.periods)
                .filter(|_| row.cfs.is_some()),
            mean_use: share(self.sums.used, self.sums.seconds).map(|cores| cores / limit),
            replayed: BurstForecast::replay(&self.history, after_seconds),
        })
    }

    /// The container as a member of its pod.
    pub(crate) fn member(&self, row: &ContainerRow) -> Member {
        let advised_cores = self.cpu.limit.map(|limit| limit.cores);
        Member { own_limit_cores: row.own_limit_cores(), advised_cores }
    }

    /// The row for the metrics.
    pub(crate) fn advised(&self, row: &ContainerRow, objective: &Arc<str>) -> AdviceRow {
        let runtime = self.program.runtime();
        AdviceRow {
            identity: Arc::clone(&row.identity),
            runtime: runtime.map(|found| found.language.as_str()),
            version: runtime.and_then(|found| found.version.as_deref()).map(Into::into),
            parallelism: runtime.and_then(|found| found.parallelism),
            objective: Arc::clone(objective),
            limit_cores: self.cpu.limit.map(|limit| limit.cores),
            limit_bound: self.cpu.limit.map_or("", |limit| limit.bound()),
            burst_seconds: self.cpu.burst_seconds,
            memory_soft_limit_bytes: self.memory(row).and_then(|memory| memory.soft_limit_bytes),
        }
    }

    fn throttled_share(&self, row: &ContainerRow) -> Option<f64> {
        share(self.sums.throttled, self.sums.periods).filter(|_| row.cfs.is_some())
    }

    fn memory(&self, row: &ContainerRow) -> Option<MemoryAdvice> {
        let is_cpu_short = self.throttled_share(row).is_some_and(|share| share > THROTTLED_SHARE);
        let (limit, working_set) =
            row.memory_limit_bytes.limited().zip(row.memory_working_set_bytes)?;
        Some(memory_advice(limit, working_set, self.live_set? as u64, is_cpu_short))
    }

    /// Evaluates the advice. The displayed limit changes only after another value has lasted.
    fn evaluate(&mut self, node: NodeFacts) {
        let fresh = analysis::cpu_advice(&self.history, OBJECTIVE, node.after_seconds);
        let fresh = node.cpus.map_or(fresh, |cpus| at_most_node(fresh, cpus));
        let shown = self.limit.follow(fresh.limit.map(|limit| limit.cores));
        let held = [fresh.limit, self.cpu.limit]
            .into_iter()
            .flatten()
            .find(|limit| Some(limit.cores) == shown);
        // A burst of its own does not help against an ancestor's quota.
        let burst_seconds = fresh.burst_seconds.filter(|_| self.sums.throttled > 0.0);
        self.cpu = CpuAdvice { limit: held, burst_seconds, ..fresh };
    }

    /// Adds the interval of garbage collection that has ended, with what the quota did in it.
    fn follow_collections(&mut self, row: &ContainerRow, window: &Window) {
        self.uncollected.0 += window.used_ns as f64 / 1e9;
        self.uncollected.1 |= window.is_throttled();
        let Some(recent) = row.gc.as_deref().and_then(|gc| gc.recent) else { return };
        if self.collected == recent.number {
            return;
        }
        self.collected = recent.number;
        let (used, is_throttled) = std::mem::take(&mut self.uncollected);
        self.collections.add(CollectionWindow {
            seconds: recent.seconds,
            cycles: recent.cycles,
            cpu_share: recent.cpu_share,
            used,
            is_throttled,
        });
    }

    /// Measured garbage collection, if it is read.
    fn measured_collections(&self, row: &ContainerRow) -> Option<Collections> {
        let gc = row.gc.as_deref()?;
        Some(self.collections.figures(Collections {
            live_bytes: gc.live_bytes,
            goal_bytes: gc.goal_bytes,
            limit_bytes: gc.limit_bytes,
            gogc: gc.settings.gogc,
            working_set: row.memory_working_set_bytes,
            ..Collections::default()
        }))
    }

    /// Follows the lowest memory with a slow rise: that after a garbage collection is the best
    /// estimate of the live set. Page cache is no part of it.
    fn follow_live_set(&mut self, row: &ContainerRow, length_ns: u64) {
        let Some(memory) = row.memory_live_bytes.map(|bytes| bytes as f64) else { return };
        let risen =
            self.live_set.map(|live| live * (1.0 + length_ns as f64 / 1e9 / LIVE_SET_SECONDS));
        self.live_set = Some(risen.map_or(memory, |live| live.min(memory)));
    }
}

#[cfg(test)]
mod tests;
