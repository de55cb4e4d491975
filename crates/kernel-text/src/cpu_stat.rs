//! `cpu.stat`, `cpu.stat.local` and `cpuacct.stat`.

use crate::{Result, flat_keyed};

/// `cpu.stat` of cgroup v1 (nanoseconds) or v2 (microseconds), converted to nanoseconds.
///
/// v1 prints `nr_periods nr_throttled throttled_time nr_bursts burst_time`. v2 prints
/// `usage_usec user_usec system_usec` and, with the cpu controller enabled,
/// `nr_periods nr_throttled throttled_usec nr_bursts burst_usec`. Bursts exist since 5.14.
/// (kernel/sched/core.c `cpu_cfs_stat_show`, `cpu_extra_stat_show`.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// CPU time used, nanoseconds; v2 only.
    pub usage_ns: Option<u64>,
    /// CPU time in user mode, nanoseconds; v2 only.
    pub user_ns: Option<u64>,
    /// CPU time in kernel mode, nanoseconds; v2 only.
    pub system_ns: Option<u64>,
    /// Enforcement periods that began while the group had something to run.
    pub nr_periods: Option<u64>,
    /// Periods in which at least one CPU's run queue was throttled.
    pub nr_throttled: Option<u64>,
    /// Time throttled, nanoseconds summed over CPUs, so it can exceed wall time.
    pub throttled_ns: Option<u64>,
    /// Periods in which burst was used.
    pub nr_bursts: Option<u64>,
    /// Time used above the quota by burst, nanoseconds summed over CPUs.
    pub burst_ns: Option<u64>,
}

impl CpuStat {
    /// Parses `cpu.stat` of either version; the key determines the unit. `cpu.stat.local` has the
    /// same keys.
    ///
    /// # Errors
    /// Fails for a line that is not `KEY NUMBER`. Unknown keys are ignored: kernels add keys.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut stat = Self::default();
        flat_keyed("cpu.stat", text, |key, value| match key {
            b"usage_usec" => stat.usage_ns = value.checked_mul(1000),
            b"user_usec" => stat.user_ns = value.checked_mul(1000),
            b"system_usec" => stat.system_ns = value.checked_mul(1000),
            b"nr_periods" => stat.nr_periods = Some(value),
            b"nr_throttled" => stat.nr_throttled = Some(value),
            b"throttled_time" => stat.throttled_ns = Some(value),
            b"throttled_usec" => stat.throttled_ns = value.checked_mul(1000),
            b"nr_bursts" => stat.nr_bursts = Some(value),
            b"burst_time" => stat.burst_ns = Some(value),
            b"burst_usec" => stat.burst_ns = value.checked_mul(1000),
            _ => {}
        })?;
        Ok(stat)
    }
}

/// Ticks per second in `cpuacct.stat`, `/proc/stat` and `/proc/PID/stat`, on every Linux.
pub const USER_HZ: u64 = 100;

/// Length of one tick of [`USER_HZ`], nanoseconds.
pub const USER_TICK_NS: u64 = 1_000_000_000 / USER_HZ;

/// `cpuacct.stat` of cgroup v1: `user N`, `system N`, in ticks of [`USER_HZ`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuacctStat {
    /// Ticks in user mode.
    pub user_ticks: Option<u64>,
    /// Ticks in kernel mode.
    pub system_ticks: Option<u64>,
}

impl CpuacctStat {
    /// Parses `cpuacct.stat`.
    ///
    /// # Errors
    /// Fails for a line that is not `KEY NUMBER`.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut stat = Self::default();
        flat_keyed("cpuacct.stat", text, |key, value| match key {
            b"user" => stat.user_ticks = Some(value),
            b"system" => stat.system_ticks = Some(value),
            _ => {}
        })?;
        Ok(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // uname -r 6.18.44, cgroup v1.
    const V1: &[u8] =
        b"nr_periods 63\nnr_throttled 21\nthrottled_time 1449001123\nnr_bursts 0\nburst_time 0\n";
    // uname -r 6.1.0-56-cloud-amd64, cgroup v2.
    const V2: &[u8] =
        b"usage_usec 1043411\nuser_usec 1000000\nsystem_usec 43411\nnr_periods 5\nnr_throttled 4\n\
                        throttled_usec 77\nnr_bursts 1\nburst_usec 9\n";

    #[test]
    fn v1_is_in_nanoseconds() {
        let stat = CpuStat::parse(V1).unwrap();
        assert_eq!((stat.nr_periods, stat.nr_throttled), (Some(63), Some(21)));
        assert_eq!((stat.throttled_ns, stat.burst_ns), (Some(1_449_001_123), Some(0)));
        assert_eq!(stat.usage_ns, None);
    }

    #[test]
    fn v2_is_in_microseconds() {
        let stat = CpuStat::parse(V2).unwrap();
        assert_eq!((stat.usage_ns, stat.user_ns), (Some(1_043_411_000), Some(1_000_000_000)));
        assert_eq!((stat.throttled_ns, stat.nr_bursts), (Some(77_000), Some(1)));
    }

    #[test]
    fn an_absent_key_is_absent() {
        assert_eq!(CpuStat::parse(b"").unwrap(), CpuStat::default());
        assert_eq!(CpuStat::parse(b"usage_usec 1\n").unwrap().nr_periods, None);
    }

    #[test]
    fn an_unknown_key_is_passed_over() {
        assert_eq!(
            CpuStat::parse(b"core_sched.force_idle_usec 7\nnr_periods 1\n").unwrap().nr_periods,
            Some(1)
        );
    }

    #[test]
    fn a_bad_line_is_an_error() {
        assert!(CpuStat::parse(b"nr_periods one\n").is_err());
        assert!(CpuacctStat::parse(b"user\n").is_err());
    }

    #[test]
    fn cpuacct_is_in_ticks() {
        let stat = CpuacctStat::parse(b"user 197\nsystem 15\n").unwrap();
        assert_eq!((stat.user_ticks, stat.system_ticks), (Some(197), Some(15)));
    }
}
