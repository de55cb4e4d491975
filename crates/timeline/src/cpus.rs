//! Load of each CPU, from `/proc/stat`.

use std::path::{Path, PathBuf};

use procfs::{CpuTime, FromReadSI, KernelStats, current_system_info};

/// Reads the load of each CPU since the previous reading.
#[derive(Debug)]
pub(crate) struct CpuLoad {
    stat: PathBuf,
    /// Busy and total time of each CPU line at the previous reading, milliseconds.
    last: Vec<(u64, u64)>,
}

impl CpuLoad {
    pub(crate) fn new(proc_root: &Path) -> Self {
        Self { stat: proc_root.join("stat"), last: Vec::new() }
    }

    /// Forgets the previous reading, because no view is open.
    pub(crate) fn pause(&mut self) {
        self.last.clear();
    }

    /// Share of the time in which each online CPU was busy, 0 to 1, in the order of the CPU
    /// numbers. Empty if there is no previous reading with the same number of CPUs, or the file
    /// cannot be read.
    pub(crate) fn read(&mut self) -> Vec<f64> {
        let Ok(stats) = KernelStats::from_file(&self.stat, current_system_info()) else {
            self.last.clear();
            return Vec::new();
        };
        let now: Vec<(u64, u64)> = stats.cpu_time.iter().map(times).collect();
        let before = std::mem::replace(&mut self.last, now);
        if before.len() != self.last.len() {
            return Vec::new();
        }
        let share = |((busy, total), (busy_before, total_before)): (&(u64, u64), &(u64, u64))| {
            let passed = total.saturating_sub(*total_before);
            let busy = busy.saturating_sub(*busy_before);
            if passed == 0 { 0.0 } else { (busy as f64 / passed as f64).min(1.0) }
        };
        self.last.iter().zip(&before).map(share).collect()
    }
}

/// Busy and total time of a CPU, milliseconds. Stolen time is busy; guest time is part of user
/// time.
fn times(cpu: &CpuTime) -> (u64, u64) {
    let idle = cpu.idle_ms() + cpu.iowait_ms().unwrap_or(0);
    let busy = cpu.user_ms()
        + cpu.nice_ms()
        + cpu.system_ms()
        + cpu.irq_ms().unwrap_or(0)
        + cpu.softirq_ms().unwrap_or(0)
        + cpu.steal_ms().unwrap_or(0);
    (busy, busy + idle)
}
