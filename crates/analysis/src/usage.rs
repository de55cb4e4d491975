//! CPU use over a day, including the time lost to other pods, as one histogram per hour.

use crate::grid::{USE_BUCKETS, use_bound, use_bucket};
use crate::window::Window;

/// 24 complete hours and the current one.
const HOURS: usize = 25;
const HOUR_SECONDS: u64 = 3600;

/// Seconds per bucket of use.
#[derive(Debug, Clone)]
struct Hour {
    seconds: u64,
    /// Of the lowest bucket.
    lowest: u16,
    /// Of the other buckets; `None` while all are 0: nothing ran.
    others: Option<Box<[u16; USE_BUCKETS - 1]>>,
}

impl Hour {
    const fn new() -> Self {
        Self { seconds: 0, lowest: 0, others: None }
    }

    fn add(&mut self, bucket: usize, seconds: u16) {
        self.seconds += u64::from(seconds);
        match bucket.checked_sub(1) {
            None => self.lowest += seconds,
            Some(other) => {
                self.others.get_or_insert_with(|| Box::new([0; USE_BUCKETS - 1]))[other] += seconds;
            }
        }
    }

    fn in_bucket(&self, bucket: usize) -> u16 {
        match bucket.checked_sub(1) {
            None => self.lowest,
            Some(other) => self.others.as_deref().map_or(0, |others| others[other]),
        }
    }
}

/// Use of the last day, time lost to other pods included.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Grows to [`HOURS`] entries, then the oldest is overwritten.
    hours: Vec<Hour>,
    newest: usize,
}

impl Default for Usage {
    fn default() -> Self {
        Self { hours: vec![Hour::new()], newest: 0 }
    }
}

impl Usage {
    /// Adds one window, weighted by its length in seconds: what it used, and what it would have
    /// used instead of waiting for other pods.
    pub(crate) fn push(&mut self, window: &Window) {
        if self.hours[self.newest].seconds >= HOUR_SECONDS {
            self.begin_hour();
        }
        let wanted_ns = window.used_ns.saturating_add(window.lost_ns);
        let cores = wanted_ns as f64 / window.length_ns.max(1) as f64;
        let seconds =
            (window.length_ns as f64 / 1e9).round().clamp(1.0, HOUR_SECONDS as f64) as u16;
        self.hours[self.newest].add(use_bucket(cores), seconds);
    }

    /// Seconds behind the figures.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.hours.iter().map(|hour| hour.seconds).sum()
    }

    /// Quantile of use, cores, at most 15 % too high; `None` before the first window.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (self.seconds() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = (0..USE_BUCKETS).find(|&at| {
            seen += self.hours.iter().map(|hour| u64::from(hour.in_bucket(at))).sum::<u64>();
            seen >= wanted && seen > 0
        });
        bucket.map(use_bound)
    }

    /// Heap bytes once a day is full.
    pub(crate) const BYTES: usize =
        HOURS * (size_of::<Hour>() + size_of::<[u16; USE_BUCKETS - 1]>());

    /// Heap bytes in use.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let others = self.hours.iter().filter_map(|hour| hour.others.as_deref());
        self.hours.capacity() * size_of::<Hour>() + others.map(size_of_val).sum::<usize>()
    }

    fn begin_hour(&mut self) {
        if self.hours.len() < HOURS {
            self.hours.reserve_exact(1);
            self.hours.push(Hour::new());
            self.newest = self.hours.len() - 1;
            return;
        }
        self.newest = (self.newest + 1) % HOURS;
        self.hours[self.newest] = Hour::new();
    }
}
