//! Findings from measured garbage collection: what it costs, and what another heap limit would save.
//!
//! The cost of a cycle follows the live heap, which it has to mark, and a cycle runs each time the
//! program has allocated the distance between the live heap and the goal. So both the number of
//! cycles and their CPU time scale with 1 / (goal - live) (Go: "A Guide to the Go Garbage
//! Collector", costs).

use api::Language;

use crate::facts::Facts;
use crate::grid::LIMITS_CORES;
use crate::memory::{HEAP_SHARE, MAX_HEAP_SHARE};
use crate::patch;
use crate::rules::{Answer, Change, Figures};

/// Interval between two readings, with what the quota did in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectionWindow {
    /// Length, seconds.
    pub seconds: f64,
    /// Number of completed cycles.
    pub cycles: u64,
    /// Share of the program's CPU time that the collector took; `None` if it is not reported.
    pub cpu_share: Option<f64>,
    /// CPU time that the container used, seconds.
    pub used: f64,
    /// Whether a quota throttled the container.
    pub is_throttled: bool,
}

/// Measured garbage collection of one container. Each interval counts half as much after ten
/// minutes.
#[derive(Debug, Clone, Copy, Default)]
pub struct CollectionHistory {
    seconds: f64,
    cycles: f64,
    /// CPU time of windows with a share, and of the collector in them, seconds: without throttling,
    /// and with it.
    used: [f64; 2],
    collector: [f64; 2],
    /// Number of those windows, without and with throttling.
    windows: [f64; 2],
    /// Number of all windows.
    count: u64,
}

/// Settings and sizes of the latest reading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Collections {
    /// Number of windows of ten seconds behind the figures.
    pub windows: u64,
    /// Completed cycles per second.
    pub cycles: f64,
    /// Share of the used CPU time that the collector took; `None` if it is not reported.
    pub cpu_share: Option<f64>,
    /// Cores that the collector took.
    pub cores: Option<f64>,
    /// The share in windows without and with throttling; `None` unless there were enough of both.
    pub by_throttling: Option<(f64, f64)>,
    /// Live heap after the latest cycle, bytes.
    pub live_bytes: Option<u64>,
    /// Heap size at which the next cycle is to be complete, bytes.
    pub goal_bytes: Option<u64>,
    /// Limit that the runtime keeps, bytes; `None` without one.
    pub limit_bytes: Option<u64>,
    /// GOGC in force, percent; negative if it is off.
    pub gogc: Option<i32>,
    /// Memory in use without inactive page cache, bytes.
    pub working_set: Option<u64>,
}

/// Time after which a window counts half, seconds.
const HALF_LIFE_SECONDS: f64 = 600.0;
/// Windows of each kind before shares with and without throttling are compared.
const COMPARED_WINDOWS: f64 = 3.0;
/// Windows before anything is found.
const MIN_WINDOWS: u64 = 6;
/// Share of CPU from which the collector costs too much.
const COSTLY_SHARE: f64 = 0.10;
/// Share of the memory limit that must be free, so that a larger heap fits.
const FREE_SHARE: f64 = 0.5;
/// Cycles per second that are too many.
const MANY_CYCLES: f64 = 2.0;
/// Factor by which the share with throttling must exceed the one without.
const THROTTLED_FACTOR: f64 = 1.5;
/// Share of its limit that a live heap may take; above it, cycles follow each other without pause.
const NEAR_LIMIT: f64 = 0.85;
/// Heap limits above this share of the container's memory limit protect nothing.
const LIMIT_SHARE: f64 = 0.97;
/// Largest advised GOGC.
const MAX_GOGC: f64 = 800.0;
/// Error of a computed limit, cores.
const ROUNDING_CORES: f64 = 1e-6;

impl CollectionHistory {
    /// Adds an interval.
    pub fn add(&mut self, window: CollectionWindow) {
        let kept = 0.5_f64.powf(window.seconds / HALF_LIFE_SECONDS);
        self.seconds = self.seconds * kept + window.seconds;
        self.cycles = self.cycles * kept + window.cycles as f64;
        for which in 0..2 {
            self.used[which] *= kept;
            self.collector[which] *= kept;
            self.windows[which] *= kept;
        }
        if let Some(share) = window.cpu_share {
            let which = usize::from(window.is_throttled);
            self.used[which] += window.used;
            self.collector[which] += window.used * share;
            self.windows[which] += 1.0;
        }
        self.count += 1;
    }

    /// The figures; sizes and settings are those of the latest reading.
    #[must_use]
    pub fn figures(&self, latest: Collections) -> Collections {
        let rate = |sum: f64| if self.seconds > 0.0 { sum / self.seconds } else { 0.0 };
        let (used, collector): (f64, f64) = (self.used.iter().sum(), self.collector.iter().sum());
        let is_known = used > 0.0;
        let enough = self.windows.iter().all(|&windows| windows >= COMPARED_WINDOWS)
            && self.used.iter().all(|&used| used > 0.0);
        let share = |which: usize| self.collector[which] / self.used[which];
        Collections {
            windows: self.count,
            cycles: rate(self.cycles),
            cpu_share: is_known.then(|| collector / used),
            cores: is_known.then(|| rate(collector)),
            by_throttling: enough.then(|| (share(0), share(1))),
            ..latest
        }
    }
}

/// A larger heap: the variables, and what it saves.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LargerHeap {
    /// GOMEMLIMIT, bytes.
    limit_bytes: u64,
    /// GOGC, percent.
    gogc: u32,
    /// Cycles and CPU time of the collector, as a factor of today's.
    factor: f64,
}

impl LargerHeap {
    /// Computes the heap that fits into the memory limit. GOMEMLIMIT is the guard: at that size the
    /// collector works harder instead of the kernel killing the container. GOGC lets the heap grow
    /// up to about there.
    fn of(facts: &Facts) -> Option<Self> {
        let gc = facts.gc.as_ref()?;
        let memory_limit = facts.memory_limit.limited()? as f64;
        let (live, goal) = (gc.live_bytes? as f64, gc.goal_bytes? as f64);
        let limit = memory_limit * HEAP_SHARE;
        // What the process uses besides its heap stays: stacks, buffers, mappings.
        let other = (gc.working_set.unwrap_or(0) as f64 - goal).max(0.0);
        let largest = (limit - other) * MAX_HEAP_SHARE;
        let gogc = ((largest / live - 1.0) * 100.0).min(MAX_GOGC);
        // In steps of 50, so that the advice does not change with each reading.
        let gogc = (gogc / 50.0).floor() * 50.0;
        let room = goal - live;
        if live <= 0.0 || room <= 0.0 || gogc < 50.0 {
            return None;
        }
        let factor = room / (live * gogc / 100.0);
        let limit_bytes = limit as u64;
        (factor < 0.8).then_some(Self { limit_bytes, gogc: gogc as u32, factor })
    }

    /// Share of CPU that the collector takes with it.
    fn share(self, now: f64) -> f64 {
        let then = now * self.factor;
        then / (1.0 - now + then)
    }

    fn figures(self, facts: &Facts) -> Figures {
        let mut figures = vec![
            ("recommendedGogc", f64::from(self.gogc)),
            ("recommendedSoftLimitBytes", self.limit_bytes as f64),
            ("expectedCyclesFactor", self.factor),
        ];
        let gc = facts.gc.as_ref();
        if let Some(share) = gc.and_then(|gc| gc.cpu_share) {
            figures.push(("expectedGcShare", self.share(share)));
        }
        if let Some(cores) = gc.and_then(|gc| gc.cores) {
            figures.push(("expectedCoresSaved", cores * (1.0 - self.factor)));
        }
        figures.extend(self.limit_cores(facts).map(|cores| ("limitCoresWithLargerHeap", cores)));
        figures
    }

    /// CPU limit for the work that is left, cores. The replay models work as a fluid, so without a
    /// share of the work the limit is lower by the same share. Rounded up to a candidate of the
    /// replay, so that it does not change with each reading.
    fn limit_cores(self, facts: &Facts) -> Option<f64> {
        let (limit, share) = (facts.cpu.limit?.cores, facts.gc.as_ref()?.cpu_share?);
        let left = limit * (1.0 - share * (1.0 - self.factor));
        let candidate = LIMITS_CORES.into_iter().find(|&cores| cores >= left - ROUNDING_CORES);
        Some(candidate.unwrap_or(left).min(limit))
    }

    fn patch(self, facts: &Facts) -> Change {
        let (limit, gogc) = (self.limit_bytes.to_string(), self.gogc.to_string());
        let variables = [("GOMEMLIMIT", limit.as_str()), ("GOGC", gogc.as_str())];
        Change::Patch(patch::environments(&facts.container, &variables))
    }
}

/// Figures of a Go program's collector, once enough was measured.
fn go(facts: &Facts) -> Option<&Collections> {
    let is_go = facts.runtime.as_ref().is_some_and(|found| found.language == Language::Go);
    facts.gc.as_ref().filter(|gc| is_go && gc.windows >= MIN_WINDOWS)
}

fn is_half_free(facts: &Facts, gc: &Collections) -> bool {
    let sizes = facts.memory_limit.limited().zip(gc.working_set);
    sizes.is_some_and(|(limit, used)| used as f64 <= limit as f64 * (1.0 - FREE_SHARE))
}

fn measured(gc: &Collections) -> Figures {
    let mut figures = vec![("gcCyclesPerSecond", gc.cycles)];
    figures.extend(gc.cpu_share.map(|share| ("gcShare", share)));
    figures.extend(gc.cores.map(|cores| ("gcCores", cores)));
    figures.extend(gc.live_bytes.map(|bytes| ("heapLiveBytes", bytes as f64)));
    figures.extend(gc.goal_bytes.map(|bytes| ("heapGoalBytes", bytes as f64)));
    figures
}

/// A change to a larger heap, or the reason why there is none.
fn larger(facts: &Facts, figures: &mut Figures) -> Change {
    let Some(heap) = LargerHeap::of(facts) else {
        return Change::none(
            "the memory limit has no room for a larger heap: raise it, or allocate less",
        );
    };
    figures.extend(heap.figures(facts));
    heap.patch(facts)
}

/// The CPU limit that the replay advises for the work that a larger heap leaves, cores; `None` unless
/// a finding contains the patch of the heap.
pub(crate) fn limit_with_larger_heap(facts: &Facts) -> Option<f64> {
    let findings: [fn(&Facts) -> Answer; 3] = [costly, in_throttled_time, too_often];
    let mut changes = findings.iter().filter_map(|finding| Some(finding(facts)?.1));
    let is_advised = changes.any(|change| matches!(change, Change::Patch(_)));
    LargerHeap::of(facts).filter(|_| is_advised)?.limit_cores(facts)
}

/// The collector takes more than a tenth of the CPU while half of the memory is free.
pub(crate) fn costly(facts: &Facts) -> Answer {
    let gc = go(facts)?;
    if gc.cpu_share? <= COSTLY_SHARE || !is_half_free(facts, gc) {
        return None;
    }
    let mut figures = measured(gc);
    let change = larger(facts, &mut figures);
    Some((figures, change))
}

/// Cycles follow each other too fast; not where [`costly`] already says so.
pub(crate) fn too_often(facts: &Facts) -> Answer {
    let gc = go(facts)?;
    if gc.cycles <= MANY_CYCLES || costly(facts).is_some() {
        return None;
    }
    let mut figures = measured(gc);
    let change = larger(facts, &mut figures);
    Some((figures, change))
}

/// The collector's share is larger in windows in which the quota throttled.
pub(crate) fn in_throttled_time(facts: &Facts) -> Answer {
    let gc = go(facts)?;
    let (without, with) = gc.by_throttling?;
    if with < COSTLY_SHARE || with < without * THROTTLED_FACTOR {
        return None;
    }
    let mut figures = measured(gc);
    figures.extend([("gcShareThrottled", with), ("gcShareUnthrottled", without)]);
    let change = larger(facts, &mut figures);
    Some((figures, change))
}

/// The live heap is near the limit that the runtime keeps, so that cycles will soon follow each other
/// without pause.
pub(crate) fn heap_near_limit(facts: &Facts) -> Answer {
    let gc = go(facts)?;
    let (live, limit) = (gc.live_bytes? as f64, gc.limit_bytes? as f64);
    if live < limit * NEAR_LIMIT {
        return None;
    }
    let mut figures = measured(gc);
    figures.push(("heapLimitBytes", limit));
    let reason = "the live heap needs more memory: raise the memory limit and GOMEMLIMIT, or find what keeps it \
                  alive (a heap profile)";
    Some((figures, Change::none(reason)))
}

/// A setting that was chosen by hand and fights the memory limit.
pub(crate) fn setting_fights_limit(facts: &Facts) -> Answer {
    let gc = go(facts)?;
    let memory_limit = facts.memory_limit.limited()? as f64;
    let mut figures = vec![("memoryLimitBytes", memory_limit)];
    figures.extend(gc.limit_bytes.map(|bytes| ("heapLimitBytes", bytes as f64)));
    figures.extend(gc.gogc.map(|gogc| ("gogc", f64::from(gogc))));
    let is_above = gc.limit_bytes.is_some_and(|bytes| bytes as f64 > memory_limit * LIMIT_SHARE);
    let is_off = gc.gogc.is_some_and(|gogc| gogc < 0) && gc.limit_bytes.is_none();
    let is_low = gc.gogc.is_some_and(|gogc| (0..100).contains(&gogc)) && is_half_free(facts, gc);
    let limit = (memory_limit * HEAP_SHARE) as u64;
    let change = if is_above || is_off {
        Change::Patch(patch::environment(&facts.container, "GOMEMLIMIT", &limit.to_string()))
    } else if is_low {
        larger(facts, &mut figures)
    } else {
        return None;
    };
    Some((figures, change))
}
