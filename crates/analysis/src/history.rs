//! A container's past in bounded memory: not the windows, but what each candidate made of them, in blocks.

use crate::grid::{BURSTS, LIMITS_CORES};
use crate::replay::{Bandwidth, Count, Replay};
use crate::usage::Usage;
use crate::usage_trace::{UsageTrace, UsageTraces};
use crate::window::{DEFAULT_PERIOD_NS, Window};

/// Seconds that are replayed: 6 h.
pub const REPLAYED_SECONDS: u64 = BLOCKS as u64 * BLOCK_SECONDS;

/// Seconds in a block: the oldest ten minutes go at once.
const BLOCK_SECONDS: u64 = 600;
const BLOCKS: usize = 36;
const CANDIDATES: usize = LIMITS_CORES.len() + BURSTS.len();

/// Windows for which another CFS period must last before it replaces the one that is replayed: a runtime creates a
/// cgroup first and sets its period then.
const PERIOD_LASTS: u8 = 3;

/// Ten minutes, or less where a counter would overflow: with a period of 100 ms none passes 6,000.
#[derive(Debug, Clone)]
struct Block {
    length_ns: u64,
    /// Periods of the windows: no counter is higher.
    slots: u32,
    windows: u16,
    throttled_windows: u16,
    periods: [u16; CANDIDATES],
    throttled: [u16; CANDIDATES],
    /// Only of limits: a burst is advised by the estimate.
    throttled_at_most: [u16; LIMITS_CORES.len()],
}

impl Block {
    const fn new() -> Self {
        Self {
            length_ns: 0,
            slots: 0,
            windows: 0,
            throttled_windows: 0,
            periods: [0; CANDIDATES],
            throttled: [0; CANDIDATES],
            throttled_at_most: [0; LIMITS_CORES.len()],
        }
    }

    /// Whether the next window, of so many periods, begins another block.
    fn is_full(&self, slots: u32) -> bool {
        let has_room = self.slots.saturating_add(slots) <= u16::MAX.into() && self.windows < u16::MAX;
        self.length_ns >= BLOCK_SECONDS * 1_000_000_000 || !has_room
    }

    fn add(&mut self, at: usize, count: Count) {
        let add = |sum: &mut u16, more: u32| *sum = sum.saturating_add(u16::try_from(more).unwrap_or(u16::MAX));
        add(&mut self.periods[at], count.periods);
        add(&mut self.throttled[at], count.throttled);
        if let Some(sum) = self.throttled_at_most.get_mut(at) {
            add(sum, count.throttled_at_most);
        }
    }

    fn count(&self, at: usize) -> Count {
        Count {
            periods: self.periods[at].into(),
            throttled: self.throttled[at].into(),
            throttled_at_most: self.throttled_at_most.get(at).copied().unwrap_or(0).into(),
        }
    }
}

/// What is retained of one container.
#[derive(Debug, Clone)]
pub struct History {
    /// Grows to [`BLOCKS`], then the oldest is overwritten.
    blocks: Vec<Block>,
    newest: usize,
    states: [Replay; CANDIDATES],
    limit_cores: Option<f64>,
    /// CFS period that is replayed, nanoseconds; windows in which another one was in force.
    period: (u64, u8),
    number: u64,
    traces: UsageTraces,
    usage: Usage,
    /// The last window was idle and has changed nothing that the candidates carry: the next idle one will not either,
    /// and they count no period of it.
    is_at_rest: bool,
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
            is_at_rest: false,
        }
    }
}

impl History {
    /// Takes in one window, with the limit in force: where that changes, the bursts tried at it begin again.
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
        if self.is_at_rest && window.is_idle() {
            return;
        }
        self.is_at_rest = window.is_idle();
        let (candidates, demand) = (Candidates(limit_cores), window.demand(&self.traces, self.number));
        for (at, state) in self.states.iter_mut().enumerate() {
            let Some(bandwidth) = candidates.get(at) else { continue };
            let before = *state;
            let mut count = state.run(bandwidth, &demand);
            if candidates.was_enough(at) && !window.is_throttled() {
                count.throttled_at_most = count.throttled;
            }
            self.is_at_rest &= *state == before;
            block.add(at, count);
        }
    }

    /// Learns when the work of the windows to come is likely to come up, from a trace in which nothing was throttled.
    pub fn learn(&mut self, trace: UsageTrace) {
        self.traces.learn(trace);
    }

    /// Windows that were replayed.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.blocks.iter().map(|block| usize::from(block.windows)).sum()
    }

    /// Seconds that were replayed.
    #[must_use]
    pub fn replayed_seconds(&self) -> u64 {
        let length_ns: u64 = self.blocks.iter().map(|block| block.length_ns).sum();
        // Readings come a little early or late.
        length_ns.saturating_add(500_000_000) / 1_000_000_000
    }

    /// Seconds that were watched, a day at most.
    #[must_use]
    pub fn watched_seconds(&self) -> u64 {
        self.usage.seconds()
    }

    /// Use of the last day.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Windows in which a quota throttled.
    #[must_use]
    pub fn throttled_windows(&self) -> usize {
        self.blocks.iter().map(|block| usize::from(block.throttled_windows)).sum()
    }

    /// What the windows would have been under each of [`LIMITS_CORES`].
    pub fn limits(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        LIMITS_CORES.iter().enumerate().map(|(at, &limit)| (limit, self.count(at)))
    }

    /// What they would have been under the limit in force, with bursts: (seconds of burst, count).
    pub fn bursts(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        let (candidates, period_ns) = (Candidates(self.limit_cores), self.period.0 as f64);
        (LIMITS_CORES.len()..CANDIDATES).filter_map(move |at| {
            let bandwidth = candidates.get(at)?;
            Some((bandwidth.burst_share * bandwidth.limit_cores * period_ns / 1e9, self.count(at)))
        })
    }

    /// Bytes that a history takes once it is full.
    #[must_use]
    pub const fn bytes_when_full() -> usize {
        size_of::<Self>() + BLOCKS * size_of::<Block>() + Usage::BYTES + UsageTraces::BYTES
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

    /// What was replayed for another period says nothing about this one.
    fn follow_period(&mut self, period_ns: u64) {
        let period_ns = if period_ns == 0 { DEFAULT_PERIOD_NS } else { period_ns };
        self.period.1 = if period_ns == self.period.0 { 0 } else { self.period.1 + 1 };
        if self.period.1 < PERIOD_LASTS && self.number > 0 {
            return;
        }
        self.period = (period_ns, 0);
        (self.blocks, self.newest) = (vec![Block::new()], 0);
        (self.states, self.is_at_rest) = ([Replay::default(); CANDIDATES], false);
    }

    fn follow_limit(&mut self, limit_cores: Option<f64>) {
        self.limit_cores = limit_cores;
        self.is_at_rest = false;
        for at in LIMITS_CORES.len()..CANDIDATES {
            for block in &mut self.blocks {
                (block.periods[at], block.throttled[at]) = (0, 0);
            }
            self.states[at] = Replay::default();
        }
    }
}

/// The candidates by their place, given the limit in force.
#[derive(Clone, Copy)]
struct Candidates(Option<f64>);

impl Candidates {
    fn get(self, at: usize) -> Option<Bandwidth> {
        if let Some(&limit_cores) = LIMITS_CORES.get(at) {
            return Some(Bandwidth { limit_cores, burst_share: 0.0 });
        }
        Some(Bandwidth { limit_cores: self.0?, burst_share: BURSTS[at - LIMITS_CORES.len()] })
    }

    /// Whether the limit in force was no higher than this one.
    fn was_enough(self, at: usize) -> bool {
        self.0.zip(LIMITS_CORES.get(at)).is_some_and(|(in_force, &limit)| limit >= in_force)
    }
}
