//! Six hours of one container in bounded memory: not the windows, but what each candidate made of them, in blocks.

use crate::grid::{BURSTS, LIMITS_CORES, USE_BUCKETS, use_bound, use_bucket};
use crate::replay::{Bandwidth, Count, Replay};
use crate::stretch::{READINGS, Stretch};
use crate::window::Window;

/// One-second windows that are kept: 6 h.
pub const RETAINED_WINDOWS: usize = BLOCKS * BLOCK_WINDOWS as usize;

/// Windows in a block: the oldest ten minutes go at once.
const BLOCK_WINDOWS: u16 = 600;
const BLOCKS: usize = 36;
const CANDIDATES: usize = LIMITS_CORES.len() + BURSTS.len();

/// Ten minutes. A window of a second has ten periods, so that no counter passes 65,535; longer windows saturate.
#[derive(Debug, Clone)]
struct Block {
    windows: u16,
    censored: u16,
    unshaped: u16,
    periods: [u16; CANDIDATES],
    throttled: [u16; CANDIDATES],
    used: [u16; USE_BUCKETS],
}

impl Block {
    const fn new() -> Self {
        Self {
            windows: 0,
            censored: 0,
            unshaped: 0,
            periods: [0; CANDIDATES],
            throttled: [0; CANDIDATES],
            used: [0; USE_BUCKETS],
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
    number: u64,
    shape: Option<Stretch>,
    /// The last window was idle and has changed nothing that the candidates carry: the next idle one will not either,
    /// and they count no period of it.
    is_at_rest: bool,
}

impl Default for History {
    fn default() -> Self {
        let mut states = [Replay::new(Bandwidth { limit_cores: 0.0, burst_ns: 0.0 }); CANDIDATES];
        for (state, &limit_cores) in states.iter_mut().zip(&LIMITS_CORES) {
            *state = Replay::new(Bandwidth { limit_cores, burst_ns: 0.0 });
        }
        Self {
            blocks: vec![Block::new()],
            newest: 0,
            states,
            limit_cores: None,
            number: 0,
            shape: None,
            is_at_rest: false,
        }
    }
}

impl History {
    /// Takes in one window, with the limit in force: where that changes, the bursts tried at it begin anew.
    pub fn push(&mut self, window: &Window, limit_cores: Option<f64>) {
        if self.limit_cores != limit_cores {
            self.follow_limit(limit_cores);
        }
        if self.blocks[self.newest].windows >= BLOCK_WINDOWS {
            self.turn();
        }
        self.number += 1;
        let block = &mut self.blocks[self.newest];
        block.windows += 1;
        block.censored += u16::from(window.is_censored());
        block.unshaped += u16::from(window.periods.is_none() && (self.shape.is_none() || window.is_censored()));
        let cores = window.used_ns as f64 / window.length_ns.max(1) as f64;
        block.used[use_bucket(cores)] += 1;
        if self.is_at_rest && window.is_idle() {
            return;
        }
        let (candidates, demand) = (Candidates(limit_cores), window.demand(self.shape.as_ref(), self.number));
        self.is_at_rest = window.is_idle();
        for (at, state) in self.states.iter_mut().enumerate() {
            let Some(bandwidth) = candidates.get(at) else { continue };
            let before = *state;
            let count = state.run(bandwidth, &demand);
            self.is_at_rest &= *state == before;

            block.periods[at] = block.periods[at].saturating_add(count.periods as u16);
            block.throttled[at] = block.throttled[at].saturating_add(count.throttled as u16);
        }
    }

    /// Shapes the windows to come as the work arrived in this stretch, in which nothing may have been denied.
    pub fn learn(&mut self, shape: Stretch) {
        self.shape = Some(shape);
    }

    /// Windows behind the figures.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.sum(|block| block.windows)
    }

    /// Windows in which a quota denied something.
    #[must_use]
    pub fn censored_windows(&self) -> usize {
        self.sum(|block| block.censored)
    }

    /// Windows without a quota and before the first stretch, whose bursts inside a second were not seen.
    #[must_use]
    pub fn unshaped_windows(&self) -> usize {
        self.sum(|block| block.unshaped)
    }

    /// What the windows would have been under each of [`LIMITS_CORES`].
    pub fn limits(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        LIMITS_CORES.iter().enumerate().map(|(at, &limit)| (limit, self.count(at)))
    }

    /// What they would have been under the limit in force, with bursts: (seconds of burst, count).
    pub fn bursts(&self) -> impl Iterator<Item = (f64, Count)> + '_ {
        let candidates = Candidates(self.limit_cores);
        (LIMITS_CORES.len()..CANDIDATES)
            .filter_map(move |at| candidates.get(at).map(|bandwidth| (bandwidth.burst_ns / 1e9, self.count(at))))
    }

    /// The use that `share` of the windows do not pass, cores, at most 15 % too high; `None` before the first.
    #[must_use]
    pub fn use_quantile(&self, share: f64) -> Option<f64> {
        let wanted = (self.windows() as f64 * share).ceil() as usize;
        let mut seen = 0;
        let bucket = (0..USE_BUCKETS).find(|&at| {
            seen += self.sum(|block| block.used[at]);
            seen >= wanted && seen > 0
        });
        bucket.map(use_bound)
    }

    /// Bytes that a history takes once it is full.
    #[must_use]
    pub const fn bytes_when_full() -> usize {
        size_of::<Self>() + BLOCKS * size_of::<Block>() + READINGS * size_of::<u32>()
    }

    fn sum(&self, of: impl Fn(&Block) -> u16) -> usize {
        self.blocks.iter().map(|block| usize::from(of(block))).sum()
    }

    fn count(&self, at: usize) -> Count {
        let sum = |of: fn(&Block) -> &[u16; CANDIDATES]| self.blocks.iter().map(|block| u32::from(of(block)[at])).sum();
        Count { periods: sum(|block| &block.periods), throttled: sum(|block| &block.throttled) }
    }

    fn turn(&mut self) {
        if self.blocks.len() < BLOCKS {
            self.blocks.reserve_exact(1);
            self.blocks.push(Block::new());
            self.newest = self.blocks.len() - 1;
            return;
        }
        self.newest = (self.newest + 1) % BLOCKS;
        self.blocks[self.newest] = Block::new();
    }

    fn follow_limit(&mut self, limit_cores: Option<f64>) {
        self.limit_cores = limit_cores;
        self.is_at_rest = false;
        let candidates = Candidates(limit_cores);
        for at in LIMITS_CORES.len()..CANDIDATES {
            for block in &mut self.blocks {
                (block.periods[at], block.throttled[at]) = (0, 0);
            }
            if let Some(bandwidth) = candidates.get(at) {
                self.states[at] = Replay::new(bandwidth);
            }
        }
    }
}

/// The candidates by their place, given the limit in force.
#[derive(Clone, Copy)]
struct Candidates(Option<f64>);

impl Candidates {
    fn get(self, at: usize) -> Option<Bandwidth> {
        if let Some(&limit_cores) = LIMITS_CORES.get(at) {
            return Some(Bandwidth { limit_cores, burst_ns: 0.0 });
        }
        let limit_cores = self.0?;
        Some(Bandwidth { limit_cores, burst_ns: BURSTS[at - LIMITS_CORES.len()] * limit_cores * 1e8 })
    }
}
