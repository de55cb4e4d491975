//! Kernel files of one cgroup on v1 and v2, and their kept descriptors.

use std::io;
use std::path::{Path, PathBuf};

use cgroupfs::{Hierarchy, KeptFile, is_vanished};
use kernel_text::CgroupVersion;
use rustix::io::Errno;

use crate::budget::{DescriptorBudget, ReadClass};

/// A file by its content, whatever its name on this cgroup version.
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

const FILES: usize = FileId::CpusetEffective as usize + 1;

/// Mount of a v1 file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Cpu,
    Cpuacct,
    Cpuset,
    Memory,
}

type FileEntry = (FileId, ReadClass, Controller, &'static str);

/// Files of every cgroup. `cpu.stat` is read only with a quota.
const V1_CPU: &[FileEntry] = &[
    (FileId::CpuStat, ReadClass::Running, Controller::Cpu, "cpu.stat"),
    (FileId::CfsQuota, ReadClass::Setting, Controller::Cpu, "cpu.cfs_quota_us"),
    (FileId::CfsPeriod, ReadClass::Setting, Controller::Cpu, "cpu.cfs_period_us"),
];
/// Additional files of pods and containers.
const V1_USAGE: &[FileEntry] =
    &[(FileId::AcctUsage, ReadClass::Counter, Controller::Cpuacct, "cpuacct.usage")];
/// Additional files of containers.
const V1_CONTAINER: &[FileEntry] = &[
    (FileId::CpuStatLocal, ReadClass::Setting, Controller::Cpu, "cpu.stat.local"),
    (FileId::CpuShares, ReadClass::Setting, Controller::Cpu, "cpu.shares"),
    (FileId::AcctStat, ReadClass::Running, Controller::Cpuacct, "cpuacct.stat"),
    (FileId::MemoryUsage, ReadClass::Slow, Controller::Memory, "memory.usage_in_bytes"),
    (FileId::MemoryLimit, ReadClass::Slow, Controller::Memory, "memory.limit_in_bytes"),
    (FileId::MemoryStat, ReadClass::Slow, Controller::Memory, "memory.stat"),
    (FileId::MemoryNuma, ReadClass::Slow, Controller::Memory, "memory.numa_stat"),
    (FileId::CpusetEffective, ReadClass::Slow, Controller::Cpuset, "cpuset.effective_cpus"),
];
/// `cpu.stat` also contains the usage.
const V2_CPU: &[FileEntry] = &[
    (FileId::CpuStat, ReadClass::Counter, Controller::Cpu, "cpu.stat"),
    (FileId::CpuMax, ReadClass::Setting, Controller::Cpu, "cpu.max"),
];
const V2_CONTAINER: &[FileEntry] = &[
    (FileId::CpuStatLocal, ReadClass::Setting, Controller::Cpu, "cpu.stat.local"),
    (FileId::CpuWeight, ReadClass::Setting, Controller::Cpu, "cpu.weight"),
    (FileId::CpuPressure, ReadClass::Slow, Controller::Cpu, "cpu.pressure"),
    (FileId::MemoryUsage, ReadClass::Slow, Controller::Memory, "memory.current"),
    (FileId::MemoryLimit, ReadClass::Slow, Controller::Memory, "memory.max"),
    (FileId::MemoryStat, ReadClass::Slow, Controller::Memory, "memory.stat"),
    (FileId::MemoryNuma, ReadClass::Slow, Controller::Memory, "memory.numa_stat"),
    (FileId::CpusetEffective, ReadClass::Slow, Controller::Cpuset, "cpuset.cpus.effective"),
];

/// Files that are read for a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSet {
    /// Throttling and quota: for cgroups above the pods.
    Bandwidth,
    /// Throttling, quota and usage.
    Pod,
    /// All files.
    Container,
}

fn entries(version: CgroupVersion, set: FileSet) -> impl Iterator<Item = &'static FileEntry> {
    let (cpu, usage, container) = match version {
        CgroupVersion::V1 => (V1_CPU, V1_USAGE, V1_CONTAINER),
        CgroupVersion::V2 => (V2_CPU, &[][..], V2_CONTAINER),
    };
    let (usage, container) = match set {
        FileSet::Bandwidth => (&[][..], &[][..]),
        FileSet::Pod => (usage, &[][..]),
        FileSet::Container => (usage, container),
    };
    cpu.iter().chain(usage).chain(container)
}

/// Number of files of a class for a file set.
pub(crate) fn count(version: CgroupVersion, set: FileSet, class: ReadClass) -> u64 {
    entries(version, set).filter(|entry| entry.1 == class).count() as u64
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
    /// This kernel or hierarchy has no such file.
    #[default]
    Absent,
    Kept(KeptFile),
    /// Not kept, because it is read rarely: it is opened for each read.
    Closed,
    /// The file exists but is opened at every read: the budget or the process ran out of
    /// descriptors.
    Unkept,
}

/// Classes of a cgroup's files that stay open between reads, if descriptors suffice. A file that is
/// open costs 4.3 KiB of kernel memory, most of it a buffer; to open one for a read costs 6 to 8 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) counters: bool,
    pub(crate) running: bool,
    pub(crate) settings: bool,
    pub(crate) slow: bool,
}

impl Keeping {
    pub(crate) const ALL: Self = Self { counters: true, running: true, settings: true, slow: true };

    pub(crate) fn includes(self, class: ReadClass) -> bool {
        match class {
            ReadClass::Counter => self.counters,
            ReadClass::Running => self.running,
            ReadClass::Setting => self.settings,
            ReadClass::Slow => self.slow,
        }
    }
}

/// Open files of one cgroup.
#[derive(Debug)]
pub(crate) struct Files {
    set: FileSet,
    keeping: Keeping,
    slots: [Slot; FILES],
}

impl Files {
    /// Creates the set without opening a file.
    pub(crate) fn new(set: FileSet, keeping: Keeping) -> Self {
        Self { set, keeping, slots: std::array::from_fn(|_| Slot::Absent) }
    }

    /// Opens the files that exist and are not open yet. It is called repeatedly while a cgroup is
    /// new, because a runtime creates the cgroup in one v1 hierarchy after the other. A file that
    /// cannot be opened now, such as without a free descriptor, is opened at every read until it
    /// can be kept.
    ///
    /// # Errors
    /// Returns the error of the first file that exists and could not be opened. The others are
    /// opened anyway.
    pub(crate) fn open(
        &mut self,
        hierarchy: &Hierarchy,
        relative: &str,
        budget: &mut DescriptorBudget,
    ) -> cgroupfs::Result<()> {
        let mut result = Ok(());
        for (id, class, controller, name) in entries(hierarchy.version, self.set) {
            let slot = &mut self.slots[*id as usize];
            let Some(mount) = mount(hierarchy, *controller) else { continue };
            let is_included = self.keeping.includes(*class);
            let wanted = match slot {
                Slot::Absent => true,
                Slot::Unkept => budget.keeps(*class),
                Slot::Closed => is_included,
                Slot::Kept(_) => false,
            };
            if !wanted {
                continue;
            }
            let directory = mount.join(relative);
            if !is_included {
                *slot = if directory.join(name).exists() { Slot::Closed } else { Slot::Absent };
            } else if budget.take(*class) {
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

    /// Closes the files that the budget no longer keeps; returns the number of closed descriptors.
    pub(crate) fn close_unkept(
        &mut self,
        version: CgroupVersion,
        budget: &DescriptorBudget,
    ) -> usize {
        let mut closed = 0;
        for (id, ..) in entries(version, self.set).filter(|(_, class, ..)| !budget.keeps(*class)) {
            let slot = &mut self.slots[*id as usize];
            if matches!(slot, Slot::Kept(_)) {
                *slot = Slot::Unkept;
                closed += 1;
            }
        }
        closed
    }

    /// Changes which files stay open. Closes the others; those to be opened are opened by
    /// [`open`](Self::open). Returns the number of closed descriptors.
    pub(crate) fn keep(&mut self, version: CgroupVersion, keeping: Keeping) -> usize {
        self.keeping = keeping;
        let mut closed = 0;
        for (id, ..) in entries(version, self.set).filter(|entry| !keeping.includes(entry.1)) {
            let slot = &mut self.slots[*id as usize];
            if matches!(slot, Slot::Kept(_)) {
                *slot = Slot::Closed;
                closed += 1;
            }
        }
        closed
    }

    /// Which files stay open.
    pub(crate) fn keeping(&self) -> Keeping {
        self.keeping
    }

    /// Whether the file exists.
    pub(crate) fn has(&self, id: FileId) -> bool {
        !matches!(self.slots[id as usize], Slot::Absent)
    }

    /// Number of descriptors kept here.
    pub(crate) fn kept(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Kept(_))).count()
    }

    /// Whether some file is opened and closed for each read, because descriptors do not suffice.
    pub(crate) fn any_unkept(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Unkept))
    }

    /// Reads one file; returns `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the kernel cannot read the file.
    pub(crate) fn read<'a>(
        &self,
        id: FileId,
        dir: CgroupDir<'_>,
        buffers: &'a mut ReadBuffers,
    ) -> io::Result<Option<&'a [u8]>> {
        let slot = &self.slots[id as usize];
        match slot {
            Slot::Absent => return Ok(None),
            Slot::Kept(file) => return file.read(&mut buffers.text).map(Some),
            Slot::Unkept | Slot::Closed => {}
        }
        if !dir.file(id, &mut buffers.path) {
            return Ok(None);
        }
        match KeptFile::open_path(&buffers.path) {
            Ok(Some(file)) => file.read(&mut buffers.text).map(Some),
            // It existed when it was closed: the cgroup is gone, or the controller was disabled.
            Ok(None) if matches!(slot, Slot::Closed) => Err(Errno::NOENT.into()),
            Ok(None) => Ok(None),
            Err(cgroupfs::Error::Io { source, .. }) => Err(source),
            Err(other) => Err(io::Error::other(other)),
        }
    }
}

/// Buffers of the reads, reused from one to the next.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers {
    /// Content of a file.
    pub(crate) text: Vec<u8>,
    /// Path of a file, or of a cgroup.
    pub(crate) path: PathBuf,
}

/// Location of a cgroup's files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CgroupDir<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) relative: &'a str,
}

impl CgroupDir<'_> {
    /// Reads a file of cgroup v2 that no [`Files`] contain; returns `None` if it does not exist.
    pub(crate) fn open<'a>(
        self,
        name: &str,
        buffers: &'a mut ReadBuffers,
    ) -> io::Result<Option<&'a [u8]>> {
        if self.hierarchy.version == CgroupVersion::V1 {
            return Ok(None);
        }
        buffers.path.clear();
        buffers.path.extend([&*self.hierarchy.cpu, Path::new(self.relative), Path::new(name)]);
        match KeptFile::open_path(&buffers.path) {
            Ok(Some(file)) => file.read(&mut buffers.text).map(Some),
            Ok(None) => Ok(None),
            Err(cgroupfs::Error::Io { source, .. }) => Err(source),
            Err(other) => Err(io::Error::other(other)),
        }
    }

    /// Writes the path of a file; returns false if this hierarchy has no such file.
    fn file(&self, wanted: FileId, path: &mut PathBuf) -> bool {
        let mut all = entries(self.hierarchy.version, FileSet::Container);
        let found = all.find(|(id, ..)| *id == wanted);
        let place = found
            .and_then(|(_, _, controller, name)| Some((mount(self.hierarchy, *controller)?, name)));
        let Some((mount, name)) = place else { return false };
        path.clear();
        path.extend([mount, Path::new(self.relative), Path::new(name)]);
        true
    }
}

/// Failed reads by reason, counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadErrors {
    pub(crate) vanished: u64,
    pub(crate) io: u64,
    pub(crate) parse: u64,
    /// Increments of counters that no CPUs can have made.
    pub(crate) implausible: u64,
}

impl ReadErrors {
    /// Counts a failed read or open; returns whether the error means that the cgroup is gone.
    pub(crate) fn count(&mut self, error: &io::Error) -> bool {
        let vanished = is_vanished(error);
        *if vanished { &mut self.vanished } else { &mut self.io } += 1;
        vanished
    }
}
