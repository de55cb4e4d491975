//! Values that change slowly or only accumulate: memory, effective CPUs, pressure. Read for some
//! containers per tick: pressure most often, the memory limit and the memory of each NUMA node most
//! rarely.

use std::sync::Arc;

use kernel_text::{CgroupVersion, CpuSet, MemoryStat, NumaStat, Pressure, limit_bytes, parse_u64};
use snapshot::{ContainerRow, CpusetRow, Limit};

use crate::cgroup::LastCounters;
use crate::counter::Context;
use crate::files::FileId;
use crate::plan::SlowRead;
use crate::reading::{Reader, Value};
use crate::series::add;

/// Files of containers that only the page of cAdvisor's names needs, or needs more often. Not read so by
/// default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtraFiles {
    /// `memory.pressure` and `io.pressure` (cgroup v2).
    pub pressure: bool,
    /// `pids.current` (cgroup v2).
    pub tasks: bool,
    /// Memory, as often as pressure.
    pub memory: bool,
}

/// The slow files of one container, in buffers reused from one container to the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlowReading {
    pressure: Value<Pressure>,
    memory_bytes: Value<u64>,
    /// Parts of `memory_bytes`.
    memory: Value<MemoryStat>,
    limit_bytes: Value<Option<u64>>,
    numa_read: Value<()>,
    numa: NumaStat,
    cpuset_read: Value<()>,
    /// The text of the effective cpuset, without its newline.
    cpuset: String,
    extra: ExtraFiles,
    memory_pressure: Value<Pressure>,
    io_pressure: Value<Pressure>,
    tasks: Value<u64>,
}

impl SlowReading {
    pub(crate) fn with(extra: ExtraFiles) -> Self {
        Self { extra, ..Self::default() }
    }

    /// Reads the slow files into `self`.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>, files: SlowRead) {
        self.pressure = reader.get(FileId::CpuPressure, Pressure::parse);
        self.read_extra(reader);
        (self.memory_bytes, self.memory) = (Value::NotRead, Value::NotRead);
        (self.limit_bytes, self.numa_read) = (Value::NotRead, Value::NotRead);
        self.cpuset_read = Value::NotRead;
        let v1 = reader.dir.hierarchy.version == CgroupVersion::V1;
        if files >= SlowRead::Memory {
            self.memory_bytes =
                reader.get(FileId::MemoryUsage, |text| parse_u64("memory.current", text));
            let parse = if v1 { MemoryStat::parse_v1 } else { MemoryStat::parse_v2 };
            self.memory = reader.get(FileId::MemoryStat, parse);
            self.read_cpuset(reader);
        }
        if files == SlowRead::All {
            self.limit_bytes = reader.get(FileId::MemoryLimit, limit_bytes);
            self.read_numa(reader, v1);
        }
    }

    fn read_numa(&mut self, reader: &mut Reader<'_>, v1: bool) {
        let page_bytes = rustix::param::page_size() as u64;
        let numa = &mut self.numa;
        let parse =
            |text: &[u8]| if v1 { numa.read_v1(text, page_bytes) } else { numa.read_v2(text) };
        self.numa_read = reader.get(FileId::MemoryNuma, parse);
    }

    fn read_cpuset(&mut self, reader: &mut Reader<'_>) {
        let cpuset = &mut self.cpuset;
        let parse = |text: &[u8]| {
            cpuset.clear();
            cpuset.push_str(std::str::from_utf8(text.trim_ascii()).unwrap_or_default());
            Ok(())
        };
        self.cpuset_read = reader.get(FileId::CpusetEffective, parse);
    }

    fn read_extra(&mut self, reader: &mut Reader<'_>) {
        if self.extra.pressure {
            self.memory_pressure = reader.open("memory.pressure", Pressure::parse);
            self.io_pressure = reader.open("io.pressure", Pressure::parse);
        }
        if self.extra.tasks {
            self.tasks = reader.open("pids.current", |text| parse_u64("pids.current", text));
        }
    }

    fn apply_extra(&self, last: &mut LastCounters) {
        if let Value::Read(pressure) = self.memory_pressure {
            last.extra.memory = pressure;
        }
        if let Value::Read(pressure) = self.io_pressure {
            last.extra.io = pressure;
        }
        if let Value::Read(tasks) = self.tasks {
            last.extra.tasks = Some(tasks);
        }
    }

    /// Updates a row. Values that could not be read stay as they were.
    pub(crate) fn apply(
        &self,
        last: &mut LastCounters,
        row: &mut ContainerRow,
        context: &mut Context<'_>,
    ) {
        if let Value::Read(pressure) = self.pressure {
            let (some, full) = last.advance_pressure(pressure, context);
            add(&mut row.pressure_waiting_ns, some);
            add(&mut row.pressure_stalled_ns, full);
        }
        match (self.memory_bytes, self.memory) {
            (Value::Failed | Value::NotRead, _) | (_, Value::Failed | Value::NotRead) => {}
            (Value::Read(used), Value::Read(parts)) => {
                // The working set is unknown without memory.stat: usage alone is another quantity.
                row.memory_working_set_bytes =
                    parts.inactive_file.map(|inactive| used.saturating_sub(inactive));
                row.memory_live_bytes = parts.without_page_cache();
            }
            _ => (row.memory_working_set_bytes, row.memory_live_bytes) = (None, None),
        }
        match self.limit_bytes {
            Value::Failed | Value::NotRead => {}
            Value::Read(Some(limit)) => row.memory_limit_bytes = Limit::Limited(limit),
            Value::Read(None) => row.memory_limit_bytes = Limit::Unlimited,
            Value::Absent => row.memory_limit_bytes = Limit::Absent,
        }
        match self.numa_read {
            Value::Failed | Value::NotRead => {}
            Value::Read(()) => row.numa_memory.clone_from(&self.numa.nodes),
            Value::Absent => row.numa_memory.clear(),
        }
        self.apply_cpuset(row);
        self.apply_extra(last);
    }

    fn apply_cpuset(&self, row: &mut ContainerRow) {
        // A v1 cgroup that was never configured has an empty set, and cannot contain a task.
        let has_cpus = self.cpuset_read == Value::Read(()) && !self.cpuset.is_empty();
        if matches!(self.cpuset_read, Value::Failed | Value::NotRead) {
            return;
        }
        if !has_cpus {
            row.cpuset = None;
        } else if row.cpuset.as_ref().is_none_or(|known| known.cpus != self.cpuset) {
            row.cpuset = CpuSet::parse(&self.cpuset).ok().map(|cpus| {
                Arc::new(CpusetRow { count: cpus.len() as u32, cpus: self.cpuset.clone() })
            });
        }
    }
}
