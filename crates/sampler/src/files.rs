//! The kernel files of one cgroup: which there are on v1 and v2, and their kept descriptors.

use std::io;
use std::path::{Path, PathBuf};

use cgroupfs::{Hierarchy, KeptFile, Version, is_vanished};

use crate::budget::{DescriptorBudget, Rhythm};
use crate::reading::Value;

/// A file by what it says, whatever its name on this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum FileId {
    CpuStat,
    CpuStatLocal,
    CpuMax,
    CfsQuota,
    CfsPeriod,
    CpuWeight,
    CpuShares,
    AcctUsage,
    AcctStat,
    CpuPressure,
    MemoryUsage,
    MemoryLimit,
    MemoryStat,
    MemoryNuma,
    CpusetEffective,
}

impl FileId {
    /// Says what is set, and counts nothing: the last value is good until somebody writes.
    fn is_setting(self) -> bool {
        matches!(self, Self::CpuMax | Self::CfsQuota | Self::CfsPeriod | Self::CpuWeight | Self::CpuShares)
    }
}

const FILES: usize = FileId::CpusetEffective as usize + 1;

/// Which mount a v1 file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Cpu,
    Cpuacct,
    Cpuset,
    Memory,
}

type Entry = (FileId, Rhythm, Controller, &'static str);

/// For every cgroup. `cpu.stat` is read where there is a quota.
const V1_CPU: &[Entry] = &[
    (FileId::CpuStat, Rhythm::Setting, Controller::Cpu, "cpu.stat"),
    (FileId::CfsQuota, Rhythm::Setting, Controller::Cpu, "cpu.cfs_quota_us"),
    (FileId::CfsPeriod, Rhythm::Setting, Controller::Cpu, "cpu.cfs_period_us"),
];
/// Besides, for pods and containers.
const V1_USAGE: &[Entry] = &[(FileId::AcctUsage, Rhythm::Counter, Controller::Cpuacct, "cpuacct.usage")];
/// Besides, for containers.
const V1_CONTAINER: &[Entry] = &[
    (FileId::CpuStatLocal, Rhythm::Setting, Controller::Cpu, "cpu.stat.local"),
    (FileId::CpuShares, Rhythm::Setting, Controller::Cpu, "cpu.shares"),
    (FileId::AcctStat, Rhythm::Counter, Controller::Cpuacct, "cpuacct.stat"),
    (FileId::MemoryUsage, Rhythm::Slow, Controller::Memory, "memory.usage_in_bytes"),
    (FileId::MemoryLimit, Rhythm::Slow, Controller::Memory, "memory.limit_in_bytes"),
    (FileId::MemoryStat, Rhythm::Slow, Controller::Memory, "memory.stat"),
    (FileId::MemoryNuma, Rhythm::Slow, Controller::Memory, "memory.numa_stat"),
    (FileId::CpusetEffective, Rhythm::Slow, Controller::Cpuset, "cpuset.effective_cpus"),
];
/// `cpu.stat` also holds the usage.
const V2_CPU: &[Entry] = &[
    (FileId::CpuStat, Rhythm::Counter, Controller::Cpu, "cpu.stat"),
    (FileId::CpuMax, Rhythm::Setting, Controller::Cpu, "cpu.max"),
];
const V2_CONTAINER: &[Entry] = &[
    (FileId::CpuStatLocal, Rhythm::Setting, Controller::Cpu, "cpu.stat.local"),
    (FileId::CpuWeight, Rhythm::Setting, Controller::Cpu, "cpu.weight"),
    (FileId::CpuPressure, Rhythm::Slow, Controller::Cpu, "cpu.pressure"),
    (FileId::MemoryUsage, Rhythm::Slow, Controller::Memory, "memory.current"),
    (FileId::MemoryLimit, Rhythm::Slow, Controller::Memory, "memory.max"),
    (FileId::MemoryStat, Rhythm::Slow, Controller::Memory, "memory.stat"),
    (FileId::MemoryNuma, Rhythm::Slow, Controller::Memory, "memory.numa_stat"),
    (FileId::CpusetEffective, Rhythm::Slow, Controller::Cpuset, "cpuset.cpus.effective"),
];

/// Which files a cgroup is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSet {
    /// Throttling and quota: what is above the pods.
    Bandwidth,
    /// These, and the usage.
    Pod,
    /// Everything.
    Container,
}

fn entries(version: Version, set: FileSet) -> impl Iterator<Item = &'static Entry> {
    let (cpu, usage, container) = match version {
        Version::V1 => (V1_CPU, V1_USAGE, V1_CONTAINER),
        Version::V2 => (V2_CPU, &[][..], V2_CONTAINER),
    };
    let (usage, container) = match set {
        FileSet::Bandwidth => (&[][..], &[][..]),
        FileSet::Pod => (usage, &[][..]),
        FileSet::Container => (usage, container),
    };
    cpu.iter().chain(usage).chain(container)
}

/// How many files of a rhythm a cgroup of this kind has.
pub(crate) fn count(version: Version, set: FileSet, rhythm: Rhythm) -> u64 {
    entries(version, set).filter(|entry| entry.1 == rhythm).count() as u64
}

fn mount(hierarchy: &Hierarchy, controller: Controller) -> Option<&Path> {
    match controller {
        Controller::Cpu => Some(&hierarchy.cpu),
        Controller::Cpuacct => hierarchy.cpuacct.as_deref(),
        Controller::Cpuset => hierarchy.cpuset.as_deref(),
        Controller::Memory => hierarchy.memory.as_deref(),
    }
}

#[derive(Debug, Default)]
enum Slot {
    /// Not there: this kernel or this hierarchy has no such file.
    #[default]
    Absent,
    Kept(KeptFile),
    /// There, but descriptors ran out, the agent's own or the process's: opened at every read.
    Unkept,
}

/// The open files of one cgroup.
#[derive(Debug)]
pub(crate) struct Files {
    set: FileSet,
    slots: [Slot; FILES],
}

impl Files {
    /// Nothing open yet.
    pub(crate) fn new(set: FileSet) -> Self {
        Self { set, slots: std::array::from_fn(|_| Slot::Absent) }
    }

    /// Opens what is there and not yet open. A runtime makes a cgroup in one v1 hierarchy after the other, so this is
    /// called again while a cgroup is young. What cannot be opened now, such as for want of a descriptor, is not taken
    /// for absent: it is opened at every read until it can be kept.
    ///
    /// # Errors
    /// The first file that is there and could not be opened. The others are open all the same.
    pub(crate) fn open(
        &mut self,
        hierarchy: &Hierarchy,
        relative: &str,
        budget: &mut DescriptorBudget,
    ) -> cgroupfs::Result<()> {
        let mut result = Ok(());
        for (id, rhythm, controller, name) in entries(hierarchy.version, self.set) {
            let slot = &mut self.slots[*id as usize];
            let Some(mount) = mount(hierarchy, *controller) else { continue };
            let wanted = match slot {
                Slot::Absent => true,
                Slot::Unkept => budget.keeps(*rhythm),
                Slot::Kept(_) => false,
            };
            if !wanted {
                continue;
            }
            let directory = mount.join(relative);
            if budget.take(*rhythm) {
                match KeptFile::open(&directory, name) {
                    Ok(Some(file)) => *slot = Slot::Kept(file),
                    Ok(None) => {
                        budget.give_back(1);
                        *slot = Slot::Absent;
                    }
                    Err(error) => {
                        budget.give_back(1);
                        if !error.is_vanished() && !error.is_denied() {
                            *slot = Slot::Unkept;
                        }
                        result = result.and(Err(error));
                    }
                }
            } else if directory.join(name).exists() {
                *slot = Slot::Unkept;
            }
        }
        result
    }

    /// Closes what is not kept any more; gives how many descriptors that were.
    pub(crate) fn close_unkept(&mut self, version: Version, budget: &DescriptorBudget) -> usize {
        let mut closed = 0;
        for (id, ..) in entries(version, self.set).filter(|(_, rhythm, ..)| !budget.keeps(*rhythm)) {
            let slot = &mut self.slots[*id as usize];
            if matches!(slot, Slot::Kept(_)) {
                *slot = Slot::Unkept;
                closed += 1;
            }
        }
        closed
    }

    /// The file is there.
    pub(crate) fn has(&self, id: FileId) -> bool {
        !matches!(self.slots[id as usize], Slot::Absent)
    }

    /// How many descriptors are kept here.
    pub(crate) fn kept(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Kept(_))).count()
    }

    /// Some file is read by open/read/close.
    pub(crate) fn any_unkept(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Unkept))
    }

    /// Reads one file.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn read<'a>(
        &self,
        id: FileId,
        place: Place<'_>,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<Value<&'a [u8]>> {
        let slot = &self.slots[id as usize];
        match slot {
            Slot::Absent => return Ok(Value::Absent),
            _ if id.is_setting() && !place.settings => return Ok(Value::NotRead),
            Slot::Kept(file) => return file.read(buffer).map(Value::Read),
            Slot::Unkept => {}
        }
        let Some((directory, name)) = place.of(id) else { return Ok(Value::Absent) };
        match KeptFile::open(&directory, name) {
            Ok(Some(file)) => file.read(buffer).map(Value::Read),
            Ok(None) => Ok(Value::Absent),
            Err(cgroupfs::Error::Io { source, .. }) => Err(source),
            Err(other) => Err(io::Error::other(other)),
        }
    }
}

/// Where a cgroup's files are, and which of them are to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) relative: &'a str,
    /// Settings may have changed, or it is their turn.
    pub(crate) settings: bool,
}

impl Place<'_> {
    fn of(&self, wanted: FileId) -> Option<(PathBuf, &'static str)> {
        let mut all = entries(self.hierarchy.version, FileSet::Container);
        let (_, _, controller, name) = all.find(|(id, ..)| *id == wanted)?;
        Some((mount(self.hierarchy, *controller)?.join(self.relative), name))
    }
}

/// Reasons of failed reads, counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadErrors {
    pub(crate) vanished: u64,
    pub(crate) io: u64,
    pub(crate) parse: u64,
}

impl ReadErrors {
    /// Counts an error of a read or an open; true when it says that the cgroup is gone.
    pub(crate) fn count(&mut self, error: &io::Error) -> bool {
        let vanished = is_vanished(error);
        *if vanished { &mut self.vanished } else { &mut self.io } += 1;
        vanished
    }
}
