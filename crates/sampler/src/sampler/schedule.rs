//! Schedule of the sampler: times of the ticks, and the reads and walks that are due in each.

use std::time::{Duration, Instant};

use cgroupfs::node::own_thread_cpu_ns;
use snapshot::ends_window;

use super::SamplerConfig;
use crate::cgroup::CgroupId;
use crate::governor::Governor;
use crate::plan::SlowRead;
use crate::timing::{Rechecks, Timing};

/// Times of the ticks and of the rarer work in them.
pub(super) struct Schedule {
    /// Number of the current tick, from 1.
    pub(super) tick: u64,
    pub(super) governor: Governor,
    pub(super) started: Instant,
    pub(super) timing: Timing,
    pub(super) rechecks: Rechecks,
    pub(super) due: DueReads,
    /// Time at which the last tick read the counters.
    pub(super) read_at: Option<Instant>,
    /// Time between walks of the tree.
    walk_interval: Duration,
    walked: Option<Instant>,
    window_began: Option<Instant>,
}

/// Reads that are due for some cgroups only.
#[derive(Debug, Default)]
pub(super) struct DueReads {
    /// Containers whose slow files are due in this tick.
    pub(super) slow: Vec<(CgroupId, SlowRead)>,
    /// Containers whose threads are due in this tick, in the order of their ids.
    pub(super) threads: Vec<CgroupId>,
    /// Slot at which the scan of threads continues.
    pub(super) next_scan: usize,
    /// Cgroups that may be about to disappear, with the time of their second read.
    pub(super) second: Vec<(Instant, CgroupId)>,
}

impl Schedule {
    pub(super) fn new(config: &SamplerConfig) -> Self {
        let (now, timing) = (Instant::now(), Timing::default());
        let timing = if config.extra.memory { timing.with_memory_often() } else { timing };
        Self {
            tick: 0,
            governor: Governor::new(config.interval, config.cpu_budget_cores),
            started: now,
            timing,
            rechecks: Rechecks::new(now),
            due: DueReads::default(),
            read_at: None,
            walk_interval: config.reconcile_interval,
            walked: None,
            window_began: None,
        }
    }

    /// Begins the tick at `now`.
    pub(super) fn begin_tick(&mut self, now: Instant) {
        self.tick += 1;
        self.rechecks.advance(now, &self.timing);
    }

    /// Whether a walk of the tree is due; if so, the next one is due an interval later.
    pub(super) fn is_walk_due(&mut self, now: Instant) -> bool {
        let is_due = self.walked.is_none_or(|last| now.duration_since(last) >= self.walk_interval);
        if is_due {
            self.walked = Some(now);
        }
        is_due
    }

    /// Changes the interval if sampling costs too much, or no longer does, and logs it. Returns
    /// whether it changed. Only this thread's CPU time counts: a longer interval would not reduce
    /// that of the other threads.
    pub(super) fn govern(&mut self, now: Instant) -> bool {
        let since_start = now.duration_since(self.started);
        let change = self.governor.observe(since_start, own_thread_cpu_ns(), &self.timing);
        if let Some(change) = change {
            let (interval, used_cores) = (change.interval, format!("{:.4}", change.used_cores));
            tracing::warn!(
                ?interval,
                used_cores,
                "changed the sample interval to keep sampling within --cpu-budget"
            );
        }
        change.is_some()
    }

    /// Whether this tick ends a window of the histograms.
    pub(super) fn ends_window(&mut self, now: Instant) -> bool {
        let began = *self.window_began.get_or_insert(now);
        let ends = ends_window(began, now, self.governor.interval());
        if ends {
            self.window_began = Some(now);
        }
        ends
    }
}
