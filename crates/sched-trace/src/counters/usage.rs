//! Cgroup v1: the usage of all cgroups with cpuacct, whose hierarchy may have other inodes than that
//! of the cpu controller.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use aya::Ebpf;
use aya::programs::ProgramError;
use foldhash::{HashMap, HashMapExt as _};
use kernel_text::CgroupVersion;

use super::{CollectError, MAPPED, load, map, run};
use crate::cpus::Cpus;
use crate::mapped::Mapped;

const NAME: &str = "collect_usage";
pub(super) const TABLE: &str = "usages";

/// Maximum number of possible CPUs: `MAX_CPUS` of the program. It reads the usage on each CPU by a
/// call of a helper, which beyond this number costs more than a read of the file.
const MAX_CPUS: u32 = 16;

/// Usage of one cgroup: `struct usage` of the program, word for word.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Usage {
    cgroup: AtomicU64,
    usage_ns: AtomicU64,
}

/// The table of the program.
#[derive(Debug)]
pub(super) struct Usages {
    records: Mapped<Usage>,
    /// Number of records of the last run.
    written: usize,
    /// Record of each cgroup.
    known: HashMap<u64, u32>,
}

/// Number of possible CPUs, where the program collects the usage.
pub(super) fn cpus(sys_root: &Path, version: CgroupVersion) -> Option<u32> {
    let cpus = Cpus::read(sys_root).ok()?.count;
    (version == CgroupVersion::V1 && cpus <= MAX_CPUS).then_some(cpus)
}

impl Usages {
    /// Loads the program.
    pub(super) fn load(ebpf: &mut Ebpf) -> Result<Self, UsageError> {
        load(ebpf, NAME)?;
        Ok(Self { records: map(ebpf, TABLE, MAPPED)?, written: 0, known: HashMap::new() })
    }

    /// Reads the usage of the cgroups at most `levels` below the kernel's root, and returns their
    /// number.
    pub(super) fn collect(
        &mut self,
        ebpf: &Ebpf,
        levels: Option<u32>,
    ) -> Result<usize, CollectError> {
        self.written = 0;
        let written = run(ebpf, NAME, levels)?;
        if written > self.records.len() {
            self.records = map(ebpf, TABLE, written).map_err(CollectError::Map)?;
        }
        self.written = written;
        self.index();
        Ok(written)
    }

    /// Finds the record of each cgroup, if cgroups came or went.
    fn index(&mut self) {
        let records = &self.records[..self.written];
        let is_known = |(record, usage): (u32, &Usage)| {
            self.known.get(&usage.cgroup.load(Relaxed)) == Some(&record)
        };
        if records.len() != self.known.len() || !(0_u32..).zip(records).all(is_known) {
            let cgroups = records.iter().map(|usage| usage.cgroup.load(Relaxed));
            self.known = cgroups.zip(0_u32..).collect();
        }
    }

    pub(super) fn get(&self, inode: u64) -> Option<u64> {
        let usage = self.records[..self.written].get(*self.known.get(&inode)? as usize)?;
        (usage.cgroup.load(Relaxed) == inode).then(|| usage.usage_ns.load(Relaxed))
    }
}

/// The program or its table is not usable.
#[derive(Debug, thiserror::Error)]
pub(super) enum UsageError {
    #[error(transparent)]
    Load(#[from] ProgramError),
    #[error(transparent)]
    Map(#[from] std::io::Error),
}
