//! What changes slowly, or only adds up: memory, effective CPUs, pressure. Read in turn, some containers a tick.

use std::sync::Arc;
use std::time::Duration;

use kernel_text::{CpuPressure, CpuSet, NumaStat, limit_bytes, parse_u64, v1_total_inactive_file, v2_inactive_file};

use crate::cgroup::Marks;
use crate::files::FileId;
use crate::reading::Reader;
use crate::series::add;
use crate::snapshot::{ContainerRow, CpusetRow};

/// Every container's slow files, and its threads, are read once in this time.
pub(crate) const ROUND: Duration = Duration::from_secs(10);

/// Where nothing has run since the last look, memory changes only by reclaim, and threads not at all: the next look is
/// so many rounds later. So is the turn of settings, of whose changes inotify tells.
pub(crate) const LATE_ROUNDS: u32 = 6;

/// Ticks of a round.
pub(crate) fn round_ticks(interval: Duration) -> u64 {
    let ticks = ROUND.as_millis() / interval.as_millis().max(1);
    u64::try_from(ticks).unwrap_or(1).max(1)
}

/// The slow files of one container, in buffers that are kept from one to the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slow {
    pressure: Option<CpuPressure>,
    working_set_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    numa: NumaStat,
    /// The text of the effective cpuset, without its newline.
    cpuset: String,
    has_cpuset: bool,
}

impl Slow {
    /// Reads the slow files into `self`.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>) {
        self.pressure = reader.get(FileId::CpuPressure, CpuPressure::parse);
        let usage = reader.get(FileId::MemoryUsage, |text| parse_u64("memory.current", text));
        let v1 = reader.place.hierarchy.version == cgroupfs::Version::V1;
        let inactive = if v1 { v1_total_inactive_file } else { v2_inactive_file };
        let inactive = reader.get(FileId::MemoryStat, inactive).flatten();
        // Without memory.stat the working set is not known: usage alone would be another quantity under its name.
        self.working_set_bytes = usage.zip(inactive).map(|(usage, inactive)| usage.saturating_sub(inactive));
        self.limit_bytes = reader.get(FileId::MemoryLimit, limit_bytes).flatten();
        self.read_numa(reader, v1);
        self.read_cpuset(reader);
    }

    fn read_numa(&mut self, reader: &mut Reader<'_>, v1: bool) {
        let page_bytes = rustix::param::page_size() as u64;
        let numa = &mut self.numa;
        let parse = |text: &[u8]| if v1 { numa.read_v1(text, page_bytes) } else { numa.read_v2(text) };
        if reader.get(FileId::MemoryNuma, parse).is_none() {
            self.numa.nodes.clear();
        }
    }

    fn read_cpuset(&mut self, reader: &mut Reader<'_>) {
        let cpuset = &mut self.cpuset;
        let parse = |text: &[u8]| {
            cpuset.clear();
            cpuset.push_str(std::str::from_utf8(text.trim_ascii()).unwrap_or_default());
            Ok(())
        };
        self.has_cpuset = reader.get(FileId::CpusetEffective, parse).is_some();
    }

    /// Brings a row up to date.
    pub(crate) fn apply(&self, marks: &mut Marks, row: &mut ContainerRow) {
        if let Some(pressure) = self.pressure {
            let (some, full) = marks.advance_pressure(pressure);
            add(&mut row.pressure_waiting_ns, some);
            add(&mut row.pressure_stalled_ns, full);
        }
        row.memory_working_set_bytes = self.working_set_bytes;
        row.memory_limit_bytes = self.limit_bytes;
        row.numa_memory.clone_from(&self.numa.nodes);
        // A v1 cgroup that nobody has configured has an empty set, and can hold no task.
        if !self.has_cpuset || self.cpuset.is_empty() {
            row.cpuset = None;
        } else if row.cpuset.as_ref().is_none_or(|known| known.cpus != self.cpuset) {
            row.cpuset = CpuSet::parse(&self.cpuset)
                .ok()
                .map(|cpus| Arc::new(CpusetRow { count: cpus.len() as u32, cpus: self.cpuset.clone() }));
        }
    }
}
