//! Load of each CPU, from its cumulative times.

use snapshot::CpuTimes;

/// The previous reading of the times.
#[derive(Debug, Default)]
pub(crate) struct CpuLoad {
    last: Vec<CpuTimes>,
}

impl CpuLoad {
    /// Share of the time since the previous reading in which each CPU was busy, 0 to 1, in the order
    /// of `times`. Empty if there is no previous reading with the same number of CPUs. Without
    /// `times`, no view is open: the next reading is the first.
    pub(crate) fn since_last(&mut self, times: Vec<CpuTimes>) -> Vec<f64> {
        let before = std::mem::replace(&mut self.last, times);
        if before.len() != self.last.len() {
            return Vec::new();
        }
        let share = |(now, before): (&CpuTimes, &CpuTimes)| {
            let passed = now.total_ms.saturating_sub(before.total_ms);
            let busy = now.busy_ms.saturating_sub(before.busy_ms);
            if passed == 0 { 0.0 } else { (busy as f64 / passed as f64).min(1.0) }
        };
        self.last.iter().zip(&before).map(share).collect()
    }
}
