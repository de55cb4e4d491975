//! Load of the tests: this binary again, running [`workload_process`].

use std::time::Duration;

/// About a second, but not a multiple of the CFS period. The kernel keeps the grid of its periods
/// while a cgroup is idle. So bursts in step with it would all meet the refill at the same point,
/// and in one of ten runs none would be throttled.
pub(crate) const BURST_EVERY: Duration = Duration::from_millis(1030);

#[test]
#[ignore = "not a test: the process of a workload, started by Cgroup::spawn"]
fn workload_process() {
    testkit::Workload::run_process();
}
