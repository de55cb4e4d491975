//! How the work of a container arrives inside a second: its use, read often for two seconds.

use crate::demand::{Demand, SECOND_SLOTS};
use crate::window::PERIOD_NS;

/// Time between two readings, nanoseconds: bursts are told apart to a fifth of a period.
pub const READ_EVERY_NS: u64 = 20_000_000;

/// Readings of a stretch, and one more for its start.
pub const READINGS: usize = 101;

/// Readings further apart than this tell too little of what was between them, nanoseconds.
const LONGEST_GAP_NS: u64 = 3 * READ_EVERY_NS;

const READINGS_A_PERIOD: usize = (PERIOD_NS as u64 / READ_EVERY_NS) as usize;

/// Places that are tried for a window, to find one with about as much work.
const STARTS: u64 = 16;

/// Step of the places: the golden ratio spreads any number of them evenly.
const START_STEP: f64 = 0.618_033_988_749_895;

/// Step of the phases at which a window's cut meets the timer's grid, which does not depend on it; as even, with the
/// places, in two dimensions.
const PHASE_STEP: f64 = 0.754_877_666_246_692_7;

/// Threads: ticks of the clock must not make a thread of their own.
const TOLERANCE: f64 = 0.2;

/// CPU time used, two seconds of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// Since the start, microseconds, every [`READ_EVERY_NS`].
    used_us: Box<[u32]>,
    /// Threads that ran at once.
    parallelism: f64,
}

impl Stretch {
    /// From readings as (time, CPU time used until then), both nanoseconds from anywhere on, about [`READ_EVERY_NS`]
    /// apart; `None` when nothing ran, or they are too few or too far apart.
    #[must_use]
    pub fn from_readings(readings: &[(u64, u64)]) -> Option<Self> {
        let (first, last) = (readings.first()?, readings.last()?);
        let is_dense = readings.windows(2).all(|pair| {
            let gap = pair[1].0.checked_sub(pair[0].0);
            gap.is_some_and(|gap| gap <= LONGEST_GAP_NS) && pair[1].1 >= pair[0].1
        });
        if !is_dense || last.0 - first.0 < (READINGS as u64 - 2) * READ_EVERY_NS || last.1 == first.1 {
            return None;
        }
        let count = ((last.0 - first.0) / READ_EVERY_NS + 1).min(READINGS as u64);
        let used_us = |at| used_at(readings, first.0 + at * READ_EVERY_NS) - first.1 as f64;
        let used_us: Box<[u32]> = (0..count).map(|at| (used_us(at) / 1e3) as u32).collect();
        // Over two slots: the kernel accounts a running thread at ticks, some milliseconds late.
        let most = used_us.windows(3).map(|three| three[2] - three[0]).max().unwrap_or(0);
        let threads = f64::from(most) * 1e3 / (2 * READ_EVERY_NS) as f64;
        Some(Self { used_us, parallelism: (threads - TOLERANCE).ceil().max(1.0) })
    }

    /// A window of so much work in so many periods, shaped as this; `None` where no part of this has the like.
    pub(crate) fn demand(&self, work_ns: f64, slots: u32, number: u64) -> Option<Demand> {
        let second_ns = work_ns * SECOND_SLOTS as f64 / f64::from(slots);
        let (start, used_ns) = self.second_like(second_ns, number)?;
        let scale = second_ns / used_ns;
        let scale = if (scale - 1.0).abs() <= SAME { 1.0 } else { scale };
        let start_ns = start as f64 * READ_EVERY_NS as f64 + spread(number, PHASE_STEP) * PERIOD_NS;
        let mut before_ns = self.used_ns(start_ns);
        let periods = std::array::from_fn(|at| {
            let after_ns = self.used_ns(start_ns + (at + 1) as f64 * PERIOD_NS);
            (after_ns - std::mem::replace(&mut before_ns, after_ns)) * scale
        });
        let mean = second_ns / (SECOND_SLOTS as f64 * PERIOD_NS);
        Some(Demand::new(periods, self.parallelism.max((mean - TOLERANCE).ceil()), slots))
    }

    /// The reading from which on a second has the most similar work, and that work in nanoseconds.
    fn second_like(&self, second_ns: f64, number: u64) -> Option<(usize, f64)> {
        let (length, phase) = (SECOND_SLOTS * READINGS_A_PERIOD, READINGS_A_PERIOD);
        let room = self.used_us.len().checked_sub(1 + length + phase)? + 1;
        let distance = |used_ns: f64| (used_ns / second_ns - 1.0).abs();
        let mut nearest = (0, 0.0);
        for at in 0..STARTS {
            let start = (spread(number * STARTS + at, START_STEP) * room as f64) as usize;
            let used_ns = f64::from(self.used_us[start + length] - self.used_us[start]) * 1e3;
            if distance(used_ns) < distance(nearest.1) {
                nearest = (start, used_ns);
            }
            if distance(used_ns) <= SAME {
                break;
            }
        }
        (nearest.1 > second_ns / MOST_SCALED).then_some(nearest)
    }

    /// CPU time used until a time after the start, both nanoseconds.
    ///
    /// Between two readings the threads ran at full speed or not at all: at the end where the use rises, else at the start.
    fn used_ns(&self, time_ns: f64) -> f64 {
        let place = (time_ns / READ_EVERY_NS as f64).max(0.0);
        let at = (place as usize).min(self.used_us.len() - 2);
        let used_us = |from: usize| self.used_us.get(from + 1).map_or(0, |after| after - self.used_us[from]);
        let busy = (f64::from(used_us(at)) * 1e3 / (self.parallelism * READ_EVERY_NS as f64)).min(1.0);
        let is_rising = at > 0 && used_us(at + 1) > used_us(at - 1);
        let idle_first = if is_rising { 1.0 - busy } else { 0.0 };
        let part = if busy > 0.0 { ((place - at as f64 - idle_first) / busy).clamp(0.0, 1.0) } else { 0.0 };
        (f64::from(self.used_us[at]) + f64::from(used_us(at)) * part) * 1e3
    }
}

/// A place from 0 to 1.
fn spread(number: u64, step: f64) -> f64 {
    ((number % 1_000_000) as f64 * step).fract()
}

/// A stretch with less than this part of a window's work says nothing of it.
const MOST_SCALED: f64 = 4.0;

/// Work that differs by no more is the same, cut at another place.
const SAME: f64 = 0.05;

/// Between two readings as if it had been used evenly.
fn used_at(readings: &[(u64, u64)], time_ns: u64) -> f64 {
    let after = readings.partition_point(|reading| reading.0 < time_ns).min(readings.len() - 1);
    let (high, low) = (readings[after], readings[after.saturating_sub(1)]);
    let share = if high.0 > low.0 { time_ns.saturating_sub(low.0) as f64 / (high.0 - low.0) as f64 } else { 1.0 };
    low.1 as f64 + (high.1 - low.1) as f64 * share.min(1.0)
}
