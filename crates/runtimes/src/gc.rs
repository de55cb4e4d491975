//! Garbage collection of processes, read from outside: of Go from the variables of its runtime in
//! the process's memory, of a JVM from its performance data. Nothing is attached to a process, and
//! none is stopped.

pub(crate) mod hsperf;
pub(crate) mod layout;
pub(crate) mod locate;
mod memory;
mod pclntab;
mod symbols;
mod values;

use std::collections::HashMap;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Language;
use cgroupfs::bounded;
use snapshot::{GcSettings, GcUnread};

use crate::answers::Answers;
use crate::elf::Elf;
use crate::gc::hsperf::PerfData;
use crate::gc::layout::{CPU_STATS_BYTES, Layout};
use crate::gc::locate::{Addresses, locate};
use crate::gc::memory::Memory;
use crate::gc::values::{Controller, CpuTimes, max_procs};
use crate::look::{File, Looker, file};
use crate::process::Process;

/// Timeout for one process. An executable is analyzed in some 10 ms once its pages are in memory.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of executables whose addresses are remembered: more than a node runs.
const REMEMBERED: usize = 4096;
/// Attempts to read the same values twice: a cycle may end in between.
const ATTEMPTS: usize = 3;

/// Reads the garbage collection of processes.
#[derive(Debug)]
pub struct GcReader {
    answers: Answers<(), Reading>,
}

/// Result for one process: `None` if its runtime collects no garbage, or is not known.
pub type Reading = Result<Option<GcReading>, GcUnread>;

/// Garbage collection of one process, since its start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GcReading {
    /// The process: its pid, and its start in clock ticks since boot.
    pub process: (u32, u64),
    /// Number of completed cycles.
    pub cycles: u64,
    /// CPU time of the collector by the runtime's own clock, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Time in which the program was stopped for the collector, nanoseconds.
    pub pause_ns: Option<u64>,
    /// Time in which a JVM stood at safepoints, for its collectors or anything else, nanoseconds.
    pub safepoint_ns: Option<u64>,
    /// Live heap after the latest cycle, bytes.
    pub live_bytes: Option<u64>,
    /// Heap size at which the next cycle is to be complete, bytes.
    pub goal_bytes: Option<u64>,
    /// Limit that the runtime keeps, bytes; `None` without one.
    pub limit_bytes: Option<u64>,
    /// Settings in force.
    pub settings: GcSettings,
    times: Option<CpuTimes>,
}

impl GcReading {
    /// Share of the CPU time of the program since an earlier reading that the collector took, 0 to
    /// 1; `None` if the runtime does not report it.
    #[must_use]
    pub fn share_since(&self, before: &Self) -> Option<f64> {
        let (now, before) = (self.times?, before.times?);
        if now == before { Some(0.0) } else { now.share_since(&before) }
    }
}

impl GcReader {
    /// Creates a reader for the processes of this `/proc`.
    #[must_use]
    pub fn new(proc_root: PathBuf) -> Self {
        let answers = Answers::new(ANSWER_TIMEOUT, move || {
            let mut examiner = Examiner::new(proc_root.clone());
            Box::new(move |pid, ()| examiner.read(pid))
        });
        Self { answers }
    }

    /// Reads a container's first process, or a descendant if the process itself has no runtime, such
    /// as an init or a shell.
    ///
    /// # Errors
    /// The reason why it was not read.
    pub fn read(&mut self, pid: u32) -> Reading {
        self.answers.ask(pid, ()).unwrap_or(Err(GcUnread::NoAnswer))
    }
}

/// Result of the analysis of an executable.
type Located = Result<(Addresses, &'static Layout), GcUnread>;

/// Reads processes; blocks as long as their files do.
struct Examiner {
    looker: Looker,
    located: HashMap<File, Located>,
}

impl Examiner {
    fn new(proc_root: PathBuf) -> Self {
        Self { looker: Looker::new(proc_root), located: HashMap::new() }
    }

    fn read(&mut self, pid: u32) -> Reading {
        let (process, executable) = self.looker.program(pid).ok_or(GcUnread::NoAnswer)?;
        match executable.language {
            Language::Go => self.go(&process, executable.version.as_deref()).map(Some),
            Language::Jvm => jvm(&process).map(Some),
            Language::Dotnet | Language::Nodejs => Err(GcUnread::Unsupported),
            Language::Python | Language::Rust | Language::Unknown => Ok(None),
        }
    }

    fn go(&mut self, process: &Process, version: Option<&str>) -> Result<GcReading, GcUnread> {
        let layout = version.and_then(Layout::of).ok_or(GcUnread::UnknownVersion)?;
        let file = file(process).ok_or(GcUnread::NoAnswer)?;
        if self.located.len() >= REMEMBERED {
            self.located.clear();
        }
        // By file, not by build ID: an executable can claim the ID of another one.
        let located = self.located.entry(file).or_insert_with(|| analyze(process, layout));
        let (addresses, layout) = (*located)?;
        go(process, &addresses, layout)
    }
}

/// Analyzes the executable of a process.
fn analyze(process: &Process, layout: &'static Layout) -> Located {
    let file = bounded::open(&process.exe()).map_err(|_| GcUnread::NoAnswer)?;
    let elf = Elf::new(|buffer: &mut [u8], at| file.read_exact_at(buffer, at));
    let addresses = elf.and_then(|elf| locate(&elf, layout)).ok_or(GcUnread::NoSymbols)?;
    Ok((addresses, layout))
}

/// Reads a Go process.
fn go(process: &Process, at: &Addresses, layout: &Layout) -> Result<GcReading, GcUnread> {
    let started = process.started().ok_or(GcUnread::NoAnswer)?;
    let memory = Memory::open(process, at.entry)?;
    let counters = Counters::read_twice(&memory, at, layout)?;
    let mut words = vec![0; usize::try_from(layout.controller_bytes).unwrap_or_default()];
    memory.read(&mut words, at.controller)?;
    let controller = Controller::of(&words, layout).ok_or(GcUnread::Implausible)?;
    let mut procs = [0; 4];
    memory.read(&mut procs, at.max_procs)?;
    let gomaxprocs = max_procs(procs).ok_or(GcUnread::Implausible)?;
    Ok(GcReading {
        process: (process.pid(), started),
        cycles: counters.cycles.into(),
        cpu_ns: counters.times.map(|times| times.collector_ns),
        pause_ns: Some(counters.pause_ns),
        safepoint_ns: None,
        // Before the first cycle nothing is known to be live.
        live_bytes: (counters.cycles > 0).then_some(controller.live_bytes),
        goal_bytes: controller.goal_bytes(layout),
        limit_bytes: controller.limit_bytes(),
        settings: GcSettings {
            gogc: Some(controller.gogc),
            gomaxprocs: Some(gomaxprocs),
            collectors: Vec::new(),
        },
        times: counters.times,
    })
}

/// Counters of a Go process, which change only when a cycle ends or the program is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    cycles: u32,
    pause_ns: u64,
    times: Option<CpuTimes>,
}

impl Counters {
    /// Reads the counters until two successive readings are equal: then none of them is torn, and
    /// all are of the same cycle.
    fn read_twice(memory: &Memory, at: &Addresses, layout: &Layout) -> Result<Self, GcUnread> {
        let mut before = Self::read(memory, at, layout)?;
        for _ in 0..ATTEMPTS {
            let now = Self::read(memory, at, layout)?;
            match now {
                Some(counters) if now == before => return Ok(counters),
                _ => before = now,
            }
        }
        Err(GcUnread::Implausible)
    }

    /// Reads the counters once; `Ok(None)` if they are implausible.
    fn read(memory: &Memory, at: &Addresses, layout: &Layout) -> Result<Option<Self>, GcUnread> {
        let mut cycles = [0; 4];
        memory.read(&mut cycles, at.stats.wrapping_add(layout.cycles))?;
        let mut pause = [0; 8];
        memory.read(&mut pause, at.stats.wrapping_add(layout.pause_total))?;
        let (cycles, pause_ns) = (u32::from_le_bytes(cycles), u64::from_le_bytes(pause));
        let mut times = None;
        if let Some(address) = at.cpu_stats {
            let mut words = [0; CPU_STATS_BYTES as usize];
            memory.read(&mut words, address)?;
            let Some(found) = CpuTimes::of(&words) else { return Ok(None) };
            times = Some(found);
        }
        let is_time = i64::try_from(pause_ns).is_ok();
        Ok(is_time.then_some(Self { cycles, pause_ns, times }))
    }
}

/// Reads a JVM.
fn jvm(process: &Process) -> Result<GcReading, GcUnread> {
    let started = process.started().ok_or(GcUnread::NoAnswer)?;
    let own_pid = process.own_pid().ok_or(GcUnread::NoAnswer)?;
    let temporary = Path::new("/tmp");
    let names = process.names(temporary).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => GcUnread::NotPermitted,
        _ => GcUnread::NoAnswer,
    })?;
    let directories =
        names.iter().filter(|name| name.as_encoded_bytes().starts_with(b"hsperfdata_"));
    let data = directories.map(|name| temporary.join(name).join(own_pid.to_string()));
    let data = data.filter_map(|path| process.read_most(&path, hsperf::MAX_BYTES));
    let found = data.filter_map(|bytes| PerfData::parse(&bytes)).next();
    let found = found.ok_or(GcUnread::NoPerfData)?;
    let found = found.collections().ok_or(GcUnread::Implausible)?;
    Ok(GcReading {
        process: (process.pid(), started),
        cycles: found.cycles,
        cpu_ns: found.cpu_ns,
        pause_ns: Some(found.pause_ns),
        safepoint_ns: found.safepoint_ns,
        live_bytes: found.used_bytes,
        goal_bytes: found.capacity_bytes,
        limit_bytes: found.max_bytes,
        settings: GcSettings { collectors: found.collectors, ..GcSettings::default() },
        times: None,
    })
}
