//! Offsets of the collector's fields in the variables of Go's runtime, by minor version. From the
//! source of each version (`mgcpacer.go`, `mstats.go`, `mgc.go` in `src/runtime`), compared with the
//! debug information and the symbols of the first and the last release of each.
//!
//! A variable whose size differs from the table, or a version that is not in it, is not read: the
//! values would be wrong without looking so.

/// Layout of one minor version on 64-bit machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Minor version: 26 of go1.26.8.
    pub(crate) minor: u32,
    /// Size of `runtime.gcController`, bytes.
    pub(crate) controller_bytes: u64,
    /// Size of `runtime.memstats`, bytes.
    pub(crate) stats_bytes: u64,
    /// Offset of `gcPercentHeapGoal` in `gcController`; 3 words follow: `sweepDistMinTrigger`,
    /// `triggered`, `lastHeapGoal`. `gcPercent` is the first field, `memoryLimit` the second.
    pub(crate) percent_goal: usize,
    /// Offset of `heapMarked` in `gcController`.
    pub(crate) heap_marked: usize,
    /// Offset of `heapFree` in `gcController`; 3 words follow: `totalAlloc`, `totalFree`,
    /// `mappedReady`.
    pub(crate) heap_free: usize,
    /// Offset of `pause_total_ns` in `memstats`.
    pub(crate) pause_total: u64,
    /// Offset of `numgc` in `memstats`.
    pub(crate) cycles: u64,
    /// Where the times of `work.cpuStats` are found in executables without symbols.
    pub(crate) cpu_stats: CpuStats,
    /// Whether the distance of the heap goal to the memory limit is 3 % instead of 1 MiB.
    pub(crate) has_headroom_percent: bool,
}

/// Place of `work.cpuStats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuStats {
    /// This version does not count CPU time by class.
    Absent,
    /// At this offset in `work`.
    At(u64),
    /// The receiver of `(*cpuStats).accumulate` in `gcMarkTermination`. The offset differs between
    /// releases of one minor version: 472 in Go 1.23.0, 504 in 1.23.12.
    Receiver,
}

/// Size of `work.cpuStats`, the last field of `work`: eleven words, see [`super::values`].
pub(crate) const CPU_STATS_BYTES: u64 = 88;

const fn since_1_21(minor: u32, stats_bytes: u64, pause_total: u64) -> Layout {
    Layout {
        minor,
        controller_bytes: 392,
        stats_bytes,
        percent_goal: 72,
        heap_marked: 152,
        heap_free: 288,
        pause_total,
        cycles: pause_total + 8 + 2 * 256 * 8,
        cpu_stats: CpuStats::Receiver,
        has_headroom_percent: true,
    }
}

/// All known versions.
pub(crate) const LAYOUTS: [Layout; 9] = [
    Layout {
        minor: 19,
        controller_bytes: 424,
        stats_bytes: 13512,
        percent_goal: 104,
        heap_marked: 184,
        heap_free: 320,
        pause_total: 3600,
        cycles: 7704,
        cpu_stats: CpuStats::Absent,
        has_headroom_percent: false,
    },
    Layout {
        minor: 20,
        controller_bytes: 368,
        stats_bytes: 9040,
        percent_goal: 48,
        heap_marked: 128,
        heap_free: 264,
        pause_total: 3600,
        cycles: 7704,
        cpu_stats: CpuStats::At(424),
        has_headroom_percent: false,
    },
    since_1_21(21, 9040, 3600),
    since_1_21(22, 7744, 3600),
    since_1_21(23, 7744, 3600),
    since_1_21(24, 7744, 3600),
    since_1_21(25, 8264, 3576),
    since_1_21(26, 10440, 3576),
    since_1_21(27, 10440, 3576),
];

impl Layout {
    /// Layout of a version such as `go1.26.8`; `None` if it is not known, or is a pre-release.
    pub(crate) fn of(version: &str) -> Option<&'static Self> {
        let mut parts = version.strip_prefix("go1.")?.split('.');
        let minor = parts.next()?.parse::<u32>().ok()?;
        if let Some(patch) = parts.next() {
            // `go1.26.8-X:…` of an experiment has another layout.
            patch.parse::<u32>().ok()?;
        }
        LAYOUTS.iter().find(|layout| layout.minor == minor).filter(|_| parts.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_releases_with_known_offsets_have_a_layout() {
        let minor = |version| Layout::of(version).map(|layout| layout.minor);
        assert_eq!(minor("go1.26.8"), Some(26));
        assert_eq!(minor("go1.20"), Some(20));
        for other in
            ["go1.18.10", "go1.28.0", "go1.26rc1", "go1.26.8-custom", "go2.1", "1.26", "go1.26.1.2"]
        {
            assert_eq!(minor(other), None, "{other}");
        }
    }

    /// The two counters are 256 pauses and 256 times apart in every version.
    #[test]
    fn the_counters_are_as_far_apart_as_the_pauses_between_them_are_long() {
        assert!(LAYOUTS.iter().all(|layout| layout.cycles - layout.pause_total == 8 + 4096));
    }
}
