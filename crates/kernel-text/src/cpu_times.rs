//! Cumulative times of a CPU.

/// Cumulative times of one CPU in `/proc/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time in which it was not idle, milliseconds: stolen time is busy, waiting for IO is not.
    pub busy_ms: u64,
    /// All time, milliseconds.
    pub total_ms: u64,
}
