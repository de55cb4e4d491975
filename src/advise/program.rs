//! The program of one container: when its runtime is looked for, and what was found.

use analysis::Runtime;
use runtimes::{Detector, Machine};
use sampler::snapshot::ContainerRow;

/// Windows between two looks at a process that has run for long: what an init starts late is found within so many.
const LOOK_EVERY: u64 = 60;

/// What was found of the first process.
#[derive(Debug, Default)]
pub(super) struct Program {
    pid: Option<u32>,
    machine: Machine,
    /// Windows since it was first seen.
    windows: u64,
    runtime: Option<Runtime>,
}

impl Program {
    /// Looks where another process is the first, where its CPUs or its limit have changed, and from time to time: soon
    /// after its start, when it may be the container runtime still, or a shell, and then ever more seldom.
    pub(super) fn follow(&mut self, row: &ContainerRow, detector: &mut Detector) {
        if self.pid != row.first_pid {
            *self = Self { pid: row.first_pid, ..Self::default() };
        }
        let Some(pid) = self.pid else { return };
        self.windows += 1;
        let limit_cores = own_limit_cores(row);
        let first_limit_cores = self.machine.first_limit_cores.or(limit_cores);
        let cpus = row.cpuset.as_ref().map(|cpuset| cpuset.count);
        let machine = Machine { cpus, limit_cores, first_limit_cores };
        let is_time = self.windows.is_power_of_two() || self.windows.is_multiple_of(LOOK_EVERY);
        if is_time || machine != self.machine {
            self.machine = machine;
            self.runtime = detector.detect(pid, machine);
        }
    }

    pub(super) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }
}

/// The quota of the container's own cgroup, cores.
pub(super) fn own_limit_cores(row: &ContainerRow) -> Option<f64> {
    let (quota, period) = row.quota_usec.zip(row.period_usec.filter(|&period| period > 0))?;
    Some(quota as f64 / period as f64)
}
