//! The candidate limits: round numbers, at most a third apart.

/// Candidate limits, cores, ascending.
pub const LIMITS_CORES: [f64; 34] = [
    0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5,
    4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 64.0,
];

/// Candidate bursts at the current limit, as shares of its quota, ascending. 0 is the current limit
/// alone, to compare the others with.
pub(crate) const BURSTS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Ratio between the upper bounds of adjacent use buckets.
const USE_RATIO: f64 = 1.15;

/// Number of use buckets; the last one ends at about 84 cores.
pub(crate) const USE_BUCKETS: usize = 96;

/// Upper bound of the first bucket, cores.
const USE_FIRST: f64 = 0.000_125;

/// Index of the bucket for a use in cores.
pub(crate) fn use_bucket(cores: f64) -> usize {
    let steps = (cores / USE_FIRST).max(1.0).log(USE_RATIO).ceil();
    (steps as usize).min(USE_BUCKETS - 1)
}

/// Upper bound of a bucket, cores.
pub(crate) fn use_bound(bucket: usize) -> f64 {
    USE_FIRST * USE_RATIO.powi(i32::try_from(bucket).unwrap_or(i32::MAX))
}
