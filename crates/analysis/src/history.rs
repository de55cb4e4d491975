//! A container's past in bounded memory: the replay results of each candidate in blocks, without
//! the windows.

use crate::grid::{BURSTS, LIMITS_CORES};
use crate::replay::{CandidateLimit, Count, Replay};
use crate::usage::Usage;
use crate::usage_trace::{UsageTrace, UsageTraces};
use crate::window::{DEFAULT_PERIOD_NS, Window};

/// Length of the replayed history: 6 h, in seconds.
pub const REPLAYED_SECONDS: u64 = BLOCKS as u64 * BLOCK_SECONDS;

/// Length of a block, seconds: the oldest ten minutes are discarded at once.
const BLOCK_SECONDS: u64 = 600;
const BLOCKS: usize = 36;
const CANDIDATES: usize = LIMITS_CORES.len() + BURSTS.len();

/// Number of consecutive windows after which another CFS period replaces the one that is replayed:
/// a runtime creates a cgroup before it sets the period.
const PERIOD_LASTS: u8 = 3;

/// Ten minutes of results, or less where a counter would overflow: with a period of 100 ms none
/// exceeds 6,000.
#[derive(Debug, Clone)]
struct Block {
    length_ns: u64,
    /// Number of periods of the windows, an upper bound of every counter.
    slots: u32,
    windows: u16,
    throttled_windows: u16,
    /// `None` while all are 0: nothing ran.
    counts: Option<Box<BlockCounts>>,
}

/// Results of a block by candidate.
#[derive(Debug, Clone)]
struct BlockCounts {
    periods: [u16; CANDIDATES],
    throttled: [u16; CANDIDATES],
    /// Only for limits: bursts are advised by the estimate alone.
    throttled_at_most: [u16; LIMITS_CORES.len()],
}

impl BlockCounts {
    const ZERO: Self = Self {
        periods: [0; CANDIDATES],
        throttled: [0; CANDIDATES],
        throttled_at_most: [0; LIMITS_CORES.len()],
    };
}

impl Block {
    const fn new() -> Self {
        Self { length_ns: 0, slots: 0, windows: 0, throttled_windows: 0, counts: None }
    }

    /// Whether the next window, of `slots` periods, must begin another block.
    fn is_full(&self, slots: u32) -> bool {
        let has_room =
            self.slots.saturating_add(slots) <= u16::MAX.into() && self.windows < u16::MAX;
        self.length_ns >= BLOCK_SECONDS * 1_000_000_000 || !has_room
    }

    fn add(&mut self, at: usize, count: Count) {
        if count == Count::default() {
            return;
        }
        let counts = self.counts.get_or_insert_with(|| Box::new(BlockCounts::ZERO));
        let add = |sum: &mut u16, more: u32| {
            *sum = sum.saturating_add(u16::try_from(more).unwrap_or(u16::MAX));
        };
        add(&mut counts.periods[at], count.periods);
        add(&mut counts.throttled[at], count.throttled);
        if let Some(sum) = counts.throttled_at_most.get_mut(at) {
            add(sum, count.throttled_at_most);
        }
    }

    fn count(&self, at: usize) -> Count {
        let Some(counts) = self.counts.as_deref() else { return Count::default() };
        Count {
            periods: counts.periods[at].into(),
            throttled: counts.throttled[at].into(),
            throttled_at_most: counts.throttled_at_most.get(at).copied().unwrap_or(0).into(),
        }
    }
}

/// Retained history of one container.
#[derive(Debug, Clone)]
pub struct History {
    /// Grows to [`BLOCKS`] entries, then the oldest is overwritten.
    blocks: Vec<Block>,
    newest: usize,
    states: [Replay; CANDIDATES],
    limit_cores: Option<f64>,
    /// CFS period that is replayed, nanoseconds; number of consecutive windows with another period.
    period: (u64, u8),
    number: u64,
    traces: UsageTraces,
    usage: Usage,
    /// Whether the last window was idle and left every candidate's state unchanged. Another idle
    /// window will not change it either, and counts no periods.
    is_idle: bool,
}

impl Default for History {
    fn default() -> Self {
        Self {
            blocks: vec![Block::new()],
            newest: 0,
            states: [Replay::default(); CANDIDATES],
            limit_cores: None,
            period: (DEFAULT_PERIOD_NS, 0),
            number: 0,
            traces: UsageTraces::default(),
            usage: Usage::default(),
            is_idle: false,
        }
    }
}

impl History {
    /// Adds one window with the current limit. When the limit changes, the results of the bursts
    /// start again at zero.
    pub fn push(&mut self, window: &Window, limit_cores: Option<f64>) {
        self.usage.push(window);
        self.follow_period(window.period_ns);
        if self.limit_cores != limit_cores {
            self.follow_limit(limit_cores);
        }
        let window = Window { period_ns: self.period.0, ..*window };
        self.number += 1;
        let slots = window.slots().count();
        if self.blocks[self.newest].is_full(slots) {
            self.begin_block();
        }
        let block = &mut self.blocks[self.newest];
        block.slots = block.slots.saturating_add(slots);
        block.length_ns += window.length_ns;
        block.windows += 1;
        block.throttled_windows += u16::from(window.is_throttled());
        if self.is_idle && window.is_idle() {
            return;
        }
        self.is_idle = window.is_idle();
        let (candidates, demand) =
            (Candidates(limit_cores), window.demand(&self.traces, self.number));
        for (at, state) in self.states.iter_mut().enumerate() {
            let Some(bandwidth) = candidates.get(at) else { continue };
            let before = *state;
            let mut count = state.run(bandwidth, &demand);
            if candidates.was_enough(at) && !window.is_throttled() {
                count.throttled_at_most = count.throttled;
            }
            self.is_idle &= *state == before;
            block.add(at, count);
        }
    }

    /// Learns the arrival pattern of the work of later windows, from a trace without throttling.
    pub fn learn(&mut self, trace: UsageTrace) {
        self.traces.learn(trace);
    }

    /// Number of replayed windows.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.blocks.iter().map(|block| usize::from(block.windows)).sum()
    }

    /// Length of the replayed windows, seconds.
    #[must_use]
    pub fn replayed_seconds(&self) -> u64 {
        let length_ns: u64 = self.blocks.iter().map(|block| block.length_ns).sum();
        // Readings come slightly early or late: round.
        length_ns.saturating_add(500_000_000) / 1_000_000_000
    }

    /// Length of the observed use, seconds, at most a day.
    #[must_use]
    pub fn watched_seconds(&self) -> u64 {
        self.usage.seconds()
    }

    /// Use of the last day.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Number of windows with throttling.
    #[must_use]
    pub fn throttled_windows(&self) -> usize {
        self.blocks.iter().map(|block| usize::from(block.throttled_windows)).sum()
    }

    /// Results under each of [`LIMITS_CORES`].
    pub fn limits(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        LIMITS_CORES.iter().enumerate().map(|(at, &limit)| (limit, self.count(at)))
    }

    /// Results under the current limit with bursts, as (burst as a share of the quota, count),
    /// ascending from 0.
    pub fn burst_shares(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        let counts = BURSTS.iter().zip(LIMITS_CORES.len()..);
        counts.filter(|_| self.limit_cores.is_some()).map(|(&share, at)| (share, self.count(at)))
    }

    /// Results under the current limit with bursts, as (burst in seconds, count), ascending from 0.
    pub fn bursts(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        let (candidates, period_ns) = (Candidates(self.limit_cores), self.period.0 as f64);
        (LIMITS_CORES.len()..CANDIDATES).filter_map(move |at| {
            let bandwidth = candidates.get(at)?;
            Some((bandwidth.burst_share * bandwidth.limit_cores * period_ns / 1e9, self.count(at)))
        })
    }

    /// Bytes of a full history.
    #[must_use]
    pub const fn bytes_when_full() -> usize {
        size_of::<Self>()
            + BLOCKS * (size_of::<Block>() + size_of::<BlockCounts>())
            + Usage::BYTES
            + UsageTraces::BYTES
    }

    fn count(&self, at: usize) -> Count {
        self.blocks.iter().map(|block| block.count(at)).fold(Count::default(), Count::plus)
    }

    fn begin_block(&mut self) {
        if self.blocks.len() < BLOCKS {
            self.blocks.reserve_exact(1);
            self.blocks.push(Block::new());
            self.newest = self.blocks.len() - 1;
            return;
        }
        self.newest = (self.newest + 1) % BLOCKS;
        self.blocks[self.newest] = Block::new();
    }

    /// Resets the results when the period changes: results of another period do not apply.
    fn follow_period(&mut self, period_ns: u64) {
        let period_ns = if period_ns == 0 { DEFAULT_PERIOD_NS } else { period_ns };
        self.period.1 = if period_ns == self.period.0 { 0 } else { self.period.1 + 1 };
        if self.period.1 < PERIOD_LASTS && self.number > 0 {
            return;
        }
        self.period = (period_ns, 0);
        (self.blocks, self.newest) = (vec![Block::new()], 0);
        (self.states, self.is_idle) = ([Replay::default(); CANDIDATES], false);
    }

    fn follow_limit(&mut self, limit_cores: Option<f64>) {
        self.limit_cores = limit_cores;
        self.is_idle = false;
        for at in LIMITS_CORES.len()..CANDIDATES {
            for counts in self.blocks.iter_mut().filter_map(|block| block.counts.as_deref_mut()) {
                (counts.periods[at], counts.throttled[at]) = (0, 0);
            }
            self.states[at] = Replay::default();
        }
    }
}

/// The candidates by index, given the current limit.
#[derive(Clone, Copy)]
struct Candidates(Option<f64>);

impl Candidates {
    fn get(self, at: usize) -> Option<CandidateLimit> {
        if let Some(&limit_cores) = LIMITS_CORES.get(at) {
            return Some(CandidateLimit { limit_cores, burst_share: 0.0 });
        }
        Some(CandidateLimit { limit_cores: self.0?, burst_share: BURSTS[at - LIMITS_CORES.len()] })
    }

    /// Whether the current limit was at most the candidate at this index.
    fn was_enough(self, at: usize) -> bool {
        self.0.zip(LIMITS_CORES.get(at)).is_some_and(|(in_force, &limit)| limit >= in_force)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_without_work_takes_little_memory() {
        let idle = Window {
            used_ns: 0,
            lost_ns: 0,
            throttled_ns: 0,
            periods: Some(0),
            throttled_periods: Some(0),
            period_ns: DEFAULT_PERIOD_NS,
            length_ns: 1_000_000_000,
        };
        let bytes = |history: &History| {
            let counts = history.blocks.iter().filter_map(|block| block.counts.as_deref());
            size_of_val(history)
                + history.blocks.capacity() * size_of::<Block>()
                + counts.map(size_of_val).sum::<usize>()
                + history.usage.bytes()
        };
        let mut history = History::default();
        (0..86_400).for_each(|_| history.push(&idle, Some(0.2)));
        assert_eq!(history.watched_seconds(), 86_400);
        assert!(bytes(&history) < 3000, "{}", bytes(&history));
        let busy = Window { used_ns: 15_000_000, periods: Some(10), ..idle };
        (0..86_400).for_each(|_| history.push(&busy, Some(0.2)));
        let most = History::bytes_when_full() - UsageTraces::BYTES;
        assert!(bytes(&history) > most - 500 && bytes(&history) <= most, "{}", bytes(&history));
    }
}
