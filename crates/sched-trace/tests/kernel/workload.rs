//! Load that pauses: this test binary again, running [`workload_process`].

use std::time::Duration;

use testkit::Workload;

/// One thread that uses this CPU time at the start of each interval, microseconds.
pub(crate) const fn burst(cpu: u64, every: u64) -> Workload {
    Workload::Burst {
        threads: 1,
        cpu: Duration::from_micros(cpu),
        every: Duration::from_micros(every),
    }
}

#[test]
#[ignore = "not a test: the process of a workload"]
fn workload_process() {
    Workload::run_process();
}
