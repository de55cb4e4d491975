//! Arrival times of a container's work inside a window, from usage traces: two seconds of frequent
//! usage readings.

use crate::demand::{Demand, Slots};

/// Time between two readings, nanoseconds: resolves bursts to a fifth of a period of 100 ms.
pub const READ_EVERY_NS: u64 = 20_000_000;

/// Number of readings of a usage trace, including the one at its start.
pub const READINGS: usize = 101;

/// Maximum gap between two readings, nanoseconds; a larger one hides too much.
const MAX_GAP_NS: u64 = 3 * READ_EVERY_NS;

/// Maximum length of a window, nanoseconds; a longer one is too different from a trace of two
/// seconds.
const MAX_TRACED_NS: f64 = 2.5e9;

/// Number of positions to try for a window, to find one with the same work.
const STARTS: u64 = 16;

/// Step between the positions: the golden ratio spreads any number of them evenly.
const START_STEP: f64 = 0.618_033_988_749_895;

/// Step between the phases of a window's cut against the timer's grid, which is independent of it.
/// Together with the positions it spreads evenly in two dimensions.
const PHASE_STEP: f64 = 0.754_877_666_246_692_7;

/// Step of the scan when none of the [`STARTS`] positions has the same work, nanoseconds.
const SCAN_STEP_NS: f64 = READ_EVERY_NS as f64 / 2.0;

/// Number of readings over which threads are counted, and the fraction of a thread to ignore: the
/// kernel accounts a running thread at ticks, some milliseconds late. The first entry finds short
/// bursts, the second fractions of a thread.
const THREADS_OVER: [(usize, f64); 2] = [(2, TOLERANCE), (10, 0.06)];

/// Tolerance in threads: clock ticks must not show up as an additional thread.
const TOLERANCE: f64 = 0.2;

/// Maximum difference of work that counts as the same, as a share.
const SAME: f64 = 0.05;

/// Maximum difference of work between a window and a part of a trace that resembles it, as a share
/// of the window's.
const RESEMBLES: f64 = 0.25;

/// Maximum number of traces per container.
const KEPT: usize = 4;

/// Two seconds of CPU time used.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageTrace {
    /// CPU time used since the start, microseconds, one value every [`READ_EVERY_NS`].
    used_us: Box<[u32]>,
    /// Number of threads that ran in parallel.
    parallelism: f64,
    /// Minimum and maximum CPU time of a second, nanoseconds.
    second_ns: (f64, f64),
}

/// The newest traces of one container, at different levels of use. A burst that is rarer than a
/// trace is long stays in one of them after a trace has caught it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageTraces(Vec<UsageTrace>);

impl UsageTraces {
    /// Keeps a trace and replaces the one with the most similar busiest second.
    pub fn learn(&mut self, trace: UsageTrace) {
        let distance = |other: &UsageTrace| (trace.busiest_ns() / other.busiest_ns()).ln().abs();
        let nearest = (0..self.0.len())
            .min_by(|&a, &b| distance(&self.0[a]).total_cmp(&distance(&self.0[b])));
        if let Some(at) =
            nearest.filter(|&at| self.0.len() >= KEPT || distance(&self.0[at]) < RESEMBLES)
        {
            self.0.remove(at);
        }
        self.0.reserve_exact(1);
        self.0.insert(0, trace);
    }

    /// Demand of a window with this work, from the newest trace that resembles it; `None` without
    /// one.
    pub(crate) fn demand(&self, work_ns: f64, slots: Slots, number: u64) -> Option<Demand> {
        if slots.pattern_ns() * f64::from(slots.repeats) > MAX_TRACED_NS {
            return None;
        }
        self.0.iter().find_map(|trace| trace.demand(work_ns, slots, number))
    }

    /// Heap bytes of the maximum number of traces.
    pub(crate) const BYTES: usize = KEPT * (size_of::<UsageTrace>() + READINGS * size_of::<u32>());
}

impl UsageTrace {
    /// Builds a trace from readings of (time, CPU time used so far), both in nanoseconds with any
    /// origin, about [`READ_EVERY_NS`] apart. `None` if nothing ran, or if the readings are too few
    /// or too far apart.
    #[must_use]
    pub fn from_readings(readings: &[(u64, u64)]) -> Option<Self> {
        let (first, last) = (readings.first()?, readings.last()?);
        let is_dense = readings.windows(2).all(|pair| {
            let gap = pair[1].0.checked_sub(pair[0].0);
            gap.is_some_and(|gap| gap <= MAX_GAP_NS) && pair[1].1 >= pair[0].1
        });
        if !is_dense
            || last.0 - first.0 < (READINGS as u64 - 2) * READ_EVERY_NS
            || last.1 == first.1
        {
            return None;
        }
        let count = ((last.0 - first.0) / READ_EVERY_NS + 1).min(READINGS as u64);
        let used_us = |at| used_at(readings, first.0 + at * READ_EVERY_NS) - first.1 as f64;
        let used_us: Box<[u32]> = (0..count).map(|at| (used_us(at) / 1e3) as u32).collect();
        let threads = |(count, tolerance): (usize, f64)| {
            let most =
                used_us.windows(count + 1).map(|part| part[count] - part[0]).max().unwrap_or(0);
            (f64::from(most) * 1e3 / (count as u64 * READ_EVERY_NS) as f64 - tolerance).ceil()
        };
        let parallelism = THREADS_OVER.into_iter().map(threads).fold(1.0, f64::max);
        let count = (1_000_000_000 / READ_EVERY_NS) as usize;
        let seconds = used_us.windows(count + 1).map(|part| f64::from(part[count] - part[0]) * 1e3);
        let second_ns = seconds
            .fold((f64::MAX, 0.0_f64), |(least, most), used| (least.min(used), most.max(used)));
        Some(Self { used_us, parallelism, second_ns })
    }

    fn demand(&self, work_ns: f64, slots: Slots, number: u64) -> Option<Demand> {
        let pattern_ns = work_ns / f64::from(slots.repeats);
        let (start_ns, used_ns) = self.part_like(pattern_ns, slots, number)?;
        let scale = pattern_ns / used_ns;
        let scale = if (scale - 1.0).abs() <= SAME { 1.0 } else { scale };
        let mut before_ns = self.used_ns(start_ns);
        let work_ns = (1..=slots.pattern).map(|at| {
            let after_ns = self.used_ns(start_ns + f64::from(at) * slots.length_ns);
            (after_ns - std::mem::replace(&mut before_ns, after_ns)) * scale
        });
        let mean = pattern_ns / slots.pattern_ns();
        Some(Demand::new(work_ns.collect(), self.parallelism.max((mean - TOLERANCE).ceil()), slots))
    }

    /// Start of a part that resembles a pattern of this work, and the work of the part, both
    /// nanoseconds.
    fn part_like(&self, work_ns: f64, slots: Slots, number: u64) -> Option<(f64, f64)> {
        let (length_ns, spare_ns) = (slots.pattern_ns(), self.length_ns() - slots.pattern_ns());
        if spare_ns < 0.0 || !self.may_resemble(work_ns, length_ns) {
            return None;
        }
        let shift_ns = slots.length_ns.min(spare_ns / 2.0);
        let room_ns = spare_ns - shift_ns;
        let part =
            |start_ns: f64| (start_ns, self.used_ns(start_ns + length_ns) - self.used_ns(start_ns));
        let distance = |part: &(f64, f64)| (part.1 / work_ns - 1.0).abs();
        let spread = (0..STARTS).map(|at| part(place(number * STARTS + at, START_STEP) * room_ns));
        let mut nearest = (0.0, 0.0);
        for part in spread {
            if distance(&part) < distance(&nearest) {
                nearest = part;
            }
            if distance(&part) <= SAME {
                return Some((part.0 + place(number, PHASE_STEP) * shift_ns, part.1));
            }
        }
        if distance(&nearest) > RESEMBLES {
            let steps = (spare_ns / SCAN_STEP_NS) as u32;
            let scan = (0..=steps).map(|step| part(f64::from(step) * SCAN_STEP_NS));
            nearest = scan.min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        }
        (distance(&nearest) <= RESEMBLES).then_some(nearest)
    }

    /// Time from the first reading to the last, nanoseconds.
    fn length_ns(&self) -> f64 {
        (self.used_us.len() - 1) as f64 * READ_EVERY_NS as f64
    }

    /// Maximum CPU time of a second, nanoseconds; at least one microsecond, for the logarithm.
    fn busiest_ns(&self) -> f64 {
        self.second_ns.1.max(1e3)
    }

    /// Whether any part of this length can resemble this work, by the minimum and maximum of a
    /// second.
    fn may_resemble(&self, work_ns: f64, length_ns: f64) -> bool {
        let (least, most) = (
            self.second_ns.0 * (length_ns / 1e9).floor(),
            self.second_ns.1 * (length_ns / 1e9).ceil(),
        );
        least <= work_ns * (1.0 + RESEMBLES) && most >= work_ns * (1.0 - RESEMBLES)
    }

    /// CPU time used until a time after the start, both nanoseconds.
    ///
    /// Between two readings the threads are assumed to run at full speed or not at all: at the end
    /// of the gap if the use rises, else at its start.
    fn used_ns(&self, time_ns: f64) -> f64 {
        let place = (time_ns / READ_EVERY_NS as f64).max(0.0);
        let at = (place as usize).min(self.used_us.len() - 2);
        let used_us =
            |from: usize| self.used_us.get(from + 1).map_or(0, |after| after - self.used_us[from]);
        let busy =
            (f64::from(used_us(at)) * 1e3 / (self.parallelism * READ_EVERY_NS as f64)).min(1.0);
        let is_rising = at > 0 && used_us(at + 1) > used_us(at - 1);
        let idle_first = if is_rising { 1.0 - busy } else { 0.0 };
        let part = if busy > 0.0 {
            ((place - at as f64 - idle_first) / busy).clamp(0.0, 1.0)
        } else {
            0.0
        };
        (f64::from(self.used_us[at]) + f64::from(used_us(at)) * part) * 1e3
    }
}

/// Position of a window, 0..1.
fn place(number: u64, step: f64) -> f64 {
    ((number % 1_000_000) as f64 * step).fract()
}

/// Linear interpolation between two readings.
fn used_at(readings: &[(u64, u64)], time_ns: u64) -> f64 {
    let after = readings.partition_point(|reading| reading.0 < time_ns).min(readings.len() - 1);
    let (high, low) = (readings[after], readings[after.saturating_sub(1)]);
    let share = if high.0 > low.0 {
        time_ns.saturating_sub(low.0) as f64 / (high.0 - low.0) as f64
    } else {
        1.0
    };
    low.1 as f64 + (high.1 - low.1) as f64 * share.min(1.0)
}
