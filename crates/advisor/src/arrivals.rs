//! Arrival times of the work of busy containers within a second: some containers at a time are read
//! every 20 ms for two seconds.
//!
//! Needs its own thread, so that the sampler's ticks and the endpoint never wait for it. Waking
//! costs more than reading: several containers are read together, and after each has been read
//! there is a pause.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use analysis::{READ_EVERY_NS, READINGS, UsageTrace};
use cgroupfs::{Hierarchy, KeptFile};
use kernel_text::{CgroupVersion, CpuStat, parse_u64};

use crate::Advisor;

/// Maximum number of containers that are read together.
const SIDE_BY_SIDE: usize = 32;

const READ_EVERY: Duration = Duration::from_nanos(READ_EVERY_NS);

/// Wait before the next look for busy containers.
const IDLE: Duration = Duration::from_secs(2);

/// Number of such waits between two rounds after every busy container has been read: 30 s. 500 are
/// read again every nine minutes.
const PAUSES: usize = 15;

/// The same for containers that were never read, unless they fill a round: 10 s. A round of one
/// container wakes as often as a full one.
const FIRST_PAUSES: usize = 5;

/// Samples until the other end of `stopped` is dropped. Calls `round` after each round. May be
/// called again after a panic.
pub fn sample_arrivals(
    advisor: &Advisor,
    hierarchy: &Hierarchy,
    stopped: &Receiver<()>,
    mut round: impl FnMut(),
) {
    while sample_once(advisor, hierarchy, stopped).is_some() {
        round();
    }
}

/// Runs one round of readings; `None` if the thread must stop.
fn sample_once(advisor: &Advisor, hierarchy: &Hierarchy, stopped: &Receiver<()>) -> Option<()> {
    let wanted = advisor.due_for_trace(SIDE_BY_SIDE);
    let mut readers: Vec<_> = wanted
        .iter()
        .filter_map(|(labels, cgroup)| Some((labels, ArrivalReader::open(hierarchy, cgroup)?)))
        .collect();
    if readers.is_empty() {
        return wait(stopped, IDLE);
    }
    let began = Instant::now();
    for number in 0..READINGS as u32 {
        wait(stopped, (READ_EVERY * number).saturating_sub(began.elapsed()))?;
        readers.iter_mut().for_each(|(_, reader)| reader.read(began));
    }
    for (labels, reader) in &readers {
        if let Some(trace) = UsageTrace::from_readings(&reader.readings) {
            advisor.learn(labels, trace);
        }
    }
    for pause in 0..PAUSES {
        if is_next_due(advisor.never_traced(), pause) {
            break;
        }
        wait(stopped, IDLE)?;
    }
    Some(())
}

/// Whether the next round begins before all pauses, after this number of them, with this number of
/// busy containers that were never read.
fn is_next_due(never_read: usize, pauses: usize) -> bool {
    never_read >= SIDE_BY_SIDE || never_read > 0 && pauses >= FIRST_PAUSES
}

fn wait(stopped: &Receiver<()>, time: Duration) -> Option<()> {
    matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout)).then_some(())
}

/// Readings of one container's use.
struct ArrivalReader {
    version: CgroupVersion,
    file: KeptFile,
    buffer: Vec<u8>,
    /// (Time since the start, CPU time used so far), both nanoseconds.
    readings: Vec<(u64, u64)>,
}

impl ArrivalReader {
    /// Opens the usage file; `None` if the container is gone.
    fn open(hierarchy: &Hierarchy, cgroup: &str) -> Option<Self> {
        let version = hierarchy.version;
        let (mount, name): (&Path, _) = match version {
            CgroupVersion::V1 => (hierarchy.cpuacct.as_deref()?, "cpuacct.usage"),
            CgroupVersion::V2 => (&hierarchy.cpu, "cpu.stat"),
        };
        let file = KeptFile::open(&mount.join(cgroup), name).ok()??;
        Some(Self { version, file, buffer: Vec::new(), readings: Vec::with_capacity(READINGS) })
    }

    /// Adds a reading; skips one that fails.
    fn read(&mut self, began: Instant) {
        let Ok(text) = self.file.read(&mut self.buffer) else { return };
        let used_ns = match self.version {
            CgroupVersion::V1 => parse_u64("cpuacct.usage", text).ok(),
            CgroupVersion::V2 => CpuStat::parse(text).ok().and_then(|stat| stat.usage_ns),
        };
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.readings.extend(used_ns.map(|used_ns| (at_ns, used_ns)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_that_were_never_read_wait_for_each_other_for_ten_seconds() {
        let pauses = |never_read| (0..PAUSES).position(|pause| is_next_due(never_read, pause));
        assert_eq!([0, 1, 31, 32].map(pauses), [None, Some(5), Some(5), Some(0)]);
        assert_eq!(IDLE * FIRST_PAUSES as u32, Duration::from_secs(10));
    }
}
