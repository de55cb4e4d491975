//! Times of each CPU, from `/proc/stat`.

use std::path::Path;

use kernel_text::CpuTimes;
use procfs::{CpuTime, FromReadSI, KernelStats, current_system_info};

/// Reads the cumulative times of each online CPU, in the order of the CPU numbers. Empty if the file
/// cannot be read.
#[must_use]
pub fn cpu_times(proc_root: &Path) -> Vec<CpuTimes> {
    let stats = KernelStats::from_file(proc_root.join("stat"), current_system_info());
    stats.map(|stats| stats.cpu_time.iter().map(times).collect()).unwrap_or_default()
}

/// Guest time is part of user time.
fn times(cpu: &CpuTime) -> CpuTimes {
    let idle = cpu.idle_ms() + cpu.iowait_ms().unwrap_or(0);
    let busy_ms = cpu.user_ms()
        + cpu.nice_ms()
        + cpu.system_ms()
        + cpu.irq_ms().unwrap_or(0)
        + cpu.softirq_ms().unwrap_or(0)
        + cpu.steal_ms().unwrap_or(0);
    CpuTimes { busy_ms, total_ms: busy_ms + idle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_busy_and_waiting_for_io_is_not() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(cpu_times(root.path()), [], "no file");
        let ticks = 1000 / current_system_info().ticks_per_second();
        // user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\n\
                    cpu0 1 2 3 40 5 6 7 8 1 0\n\
                    cpu2 0 0 0 10 0 0 0 0 0 0\n\
                    intr 1 1\nctxt 1\nbtime 1\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n";
        std::fs::write(root.path().join("stat"), text).unwrap();
        let times = |busy, total| CpuTimes { busy_ms: busy * ticks, total_ms: total * ticks };
        assert_eq!(cpu_times(root.path()), [times(27, 72), times(0, 10)]);
    }
}
