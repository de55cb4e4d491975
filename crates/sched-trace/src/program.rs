//! The program in the kernel: load, attach, detach, and its tables in memory.
//!
//! Owns all BPF objects; does not interpret the tables.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::Map;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, RawTracePoint, RawTracePointRunOptions, TestRun as _};
use snapshot::{LATENCY_BOUNDS_NS, STALL_BOUNDS_NS};

use crate::cpus::Cpus;
use crate::error::StartError;
use crate::layout::{CgroupWaits, Control, Cpu, HALVES, Pair, TASK_NOTES};
use crate::mapped::{Mapped, Shared};
use crate::types::KernelTypes;

/// The program, built from `bpf/sched_trace.bpf.c` by `cargo xtask bpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/sched_trace.bpf.o");

/// The attached programs, named like their tracepoints.
const TRACEPOINTS: [&str; 2] = ["sched_switch", "sched_migrate_task"];

/// The program that is run and not attached.
const SETTLE: &str = "settle_cpu";

/// Number of slots per CPU in each table; powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    /// (victim, holder) pairs per half.
    pub(crate) pairs: u32,
    /// Cgroups per half.
    pub(crate) cgroups: u32,
    /// CFS run queues that have ever been throttled.
    pub(crate) throttles: u32,
}

impl Slots {
    /// Fewer slots per CPU with many CPUs, over which the same containers are spread: on four CPUs,
    /// 500 containers all meet each other on every CPU. With the histories: 780 KiB per CPU up to 4
    /// CPUs, 430 up to 16, 250 up to 64, then 160.
    pub(crate) fn for_cpus(count: u32) -> Self {
        let divisor = match count {
            0..=4 => 1,
            5..=16 => 2,
            17..=64 => 4,
            _ => 8,
        };
        Self { pairs: 4096 / divisor, cgroups: 1024 / divisor, throttles: 128 }
    }
}

/// The mapped tables.
#[derive(Debug)]
pub(crate) struct Tables {
    control: Mapped<Control>,
    pub(crate) cpus: Mapped<Cpu>,
    cgroups: Mapped<CgroupWaits>,
    pairs: Mapped<Pair>,
    slots: Slots,
}

impl Tables {
    /// The half that the program fills.
    pub(crate) fn half(&self) -> u32 {
        (self.control[0].half.load(Relaxed) & 1) as u32
    }

    /// Makes the program fill the other half.
    pub(crate) fn flip(&self) {
        self.control[0].half.store(u64::from(self.half() ^ 1), Relaxed);
    }

    /// Makes the program discard its histories.
    fn begin_session(&self) {
        self.control[0].session.fetch_add(1, Relaxed);
    }

    /// The cgroup entries of one half.
    pub(crate) fn cgroups(&self, half: u32) -> impl Iterator<Item = &CgroupWaits> {
        half_of(&self.cgroups, self.slots.cgroups, half)
    }

    /// The pair entries of one half.
    pub(crate) fn pairs(&self, half: u32) -> impl Iterator<Item = &Pair> {
        half_of(&self.pairs, self.slots.pairs, half)
    }
}

/// The entries of one half. A table is ordered by CPU, then by half.
fn half_of<T>(table: &[T], slots: u32, half: u32) -> impl Iterator<Item = &T> {
    table.chunks_exact(slots as usize).skip(half as usize).step_by(HALVES as usize).flatten()
}

/// The loaded program; detached and unloaded on drop.
#[derive(Debug)]
pub(crate) struct Program {
    ebpf: Ebpf,
    /// One link per attached program, in the order of `TRACEPOINTS`.
    links: Vec<BtfTracePointLinkId>,
    pub(crate) tables: Tables,
    is_locked_down: bool,
}

impl Program {
    /// Loads the program without attaching it.
    pub(crate) fn load(
        sys_root: &Path,
        types: &KernelTypes,
        cpus: &Cpus,
    ) -> Result<Self, StartError> {
        Self::load_object(OBJECT, sys_root, types, cpus)
    }

    fn load_object(
        object: &[u8],
        sys_root: &Path,
        types: &KernelTypes,
        cpus: &Cpus,
    ) -> Result<Self, StartError> {
        if !types.has_throttle_fields {
            return Err(StartError::NoThrottleFields);
        }
        let is_locked_down = is_locked_down(sys_root);
        let slots = Slots::for_cpus(cpus.count);
        let mut ebpf = relocate(object, types, cpus, slots)
            .map_err(|error| StartError::on_load(error, is_locked_down))?;
        for name in TRACEPOINTS {
            let loaded = tracepoint(&mut ebpf, name).load(name, &types.btf);
            loaded.map_err(|error| StartError::on_verify(error, is_locked_down))?;
        }
        settler(&mut ebpf).load().map_err(|error| StartError::on_verify(error, is_locked_down))?;
        let tables = map_tables(&ebpf, cpus.count, slots)?;
        for &(cpu, sibling) in &cpus.siblings {
            tables.cpus[cpu as usize].sibling.store(u64::from(sibling) + 1, Relaxed);
        }
        Ok(Self { ebpf, links: Vec::new(), tables, is_locked_down })
    }

    /// Attaches the programs with empty histories.
    pub(crate) fn attach(&mut self) -> Result<(), StartError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        self.tables.begin_session();
        for name in TRACEPOINTS {
            match tracepoint(&mut self.ebpf, name).attach() {
                Ok(link) => self.links.push(link),
                Err(error) => {
                    self.detach();
                    return Err(StartError::on_attach(error, self.is_locked_down));
                }
            }
        }
        Ok(())
    }

    /// Detaches the programs, so that a context switch no longer costs anything.
    pub(crate) fn detach(&mut self) {
        for (name, link) in TRACEPOINTS.into_iter().zip(self.links.drain(..)) {
            // The link is the program's own, and closing a descriptor does not fail.
            let _ = tracepoint(&mut self.ebpf, name).detach(link);
        }
    }

    /// Counts the waits in progress on a CPU. Waits that cannot be counted now count when they end.
    pub(crate) fn settle(&self, cpu: u32) {
        let Some(program) = self.ebpf.program(SETTLE) else { return };
        let Ok(program): Result<&RawTracePoint, _> = program.try_into() else { return };
        let run = |on| {
            let mut options = RawTracePointRunOptions { cpu: on, ..Default::default() };
            options.args[0] = u64::from(cpu);
            program.test_run(options).is_ok_and(|result| result.return_value == 1)
        };
        // Only a CPU on which a task waits is interrupted.
        if !self.links.is_empty() && run(None) {
            run(Some(cpu));
        }
    }

    /// Run time of the programs measured by the kernel; zero if `kernel.bpf_stats_enabled` was never
    /// on.
    pub(crate) fn run_time(&self) -> Option<Duration> {
        let programs = TRACEPOINTS.iter().filter_map(|name| self.ebpf.program(name));
        programs.map(|program| Some(program.info().ok()?.run_time())).sum()
    }
}

/// Relocates the object for this kernel and creates its maps.
fn relocate(
    object: &[u8],
    types: &KernelTypes,
    cpus: &Cpus,
    slots: Slots,
) -> Result<Ebpf, aya::EbpfError> {
    let smt = u32::from(!cpus.siblings.is_empty());
    let masks = [slots.pairs - 1, slots.cgroups - 1, slots.throttles - 1];
    types
        .loader()
        .override_global("pair_mask", &masks[0], true)
        .override_global("cgroup_mask", &masks[1], true)
        .override_global("throttle_mask", &masks[2], true)
        .override_global("smt", &smt, true)
        .override_global("latency_bounds", &LATENCY_BOUNDS_NS[..], true)
        .override_global("stall_bounds", &STALL_BOUNDS_NS[..], true)
        .map_max_entries("cpus", cpus.count)
        .map_max_entries("notes", TASK_NOTES)
        .map_max_entries("throttles", cpus.count * slots.throttles)
        .map_max_entries("cgroups", cpus.count * HALVES * slots.cgroups)
        .map_max_entries("pairs", cpus.count * HALVES * slots.pairs)
        .load(object)
}

fn tracepoint<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut BtfTracePoint {
    let program = ebpf.program_mut(name).expect("the object has this program, a test says");
    program.try_into().expect("the object has it in a tp_btf section, a test says")
}

fn settler(ebpf: &mut Ebpf) -> &mut RawTracePoint {
    let program = ebpf.program_mut(SETTLE).expect("the object has this program, a test says");
    program.try_into().expect("the object has it in a raw_tp section, a test says")
}

fn map_tables(ebpf: &Ebpf, cpus: u32, slots: Slots) -> Result<Tables, StartError> {
    Ok(Tables {
        control: map_table(ebpf, "controls", 1)?,
        cpus: map_table(ebpf, "cpus", cpus)?,
        cgroups: map_table(ebpf, "cgroups", cpus * HALVES * slots.cgroups)?,
        pairs: map_table(ebpf, "pairs", cpus * HALVES * slots.pairs)?,
        slots,
    })
}

fn map_table<T: Shared>(ebpf: &Ebpf, name: &str, len: u32) -> Result<Mapped<T>, StartError> {
    let error = |error: io::Error| StartError::Maps(name.to_owned(), error);
    let Some(Map::Array(data)) = ebpf.map(name) else {
        return Err(error(io::ErrorKind::NotFound.into()));
    };
    Mapped::new(data.fd().as_fd(), len as usize).map_err(|errno| error(errno.into()))
}

/// `confidentiality` is the mode that forbids BPF to read the kernel: kernel_lockdown(7).
pub(crate) fn is_locked_down(sys_root: &Path) -> bool {
    let path = sys_root.join("kernel/security/lockdown");
    std::fs::read_to_string(path).is_ok_and(|modes| modes.contains("[confidentiality]"))
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _};

    use super::*;

    /// The object with the program's first instruction replaced by `exit`, so that it ends without
    /// a result.
    fn object_that_no_verifier_takes() -> Vec<u8> {
        let file = object::File::parse(OBJECT).unwrap();
        let (offset, _) =
            file.section_by_name("tp_btf/sched_switch").unwrap().file_range().unwrap();
        let start = usize::try_from(offset).unwrap();
        let mut bytes = OBJECT.to_vec();
        bytes[start..start + 8].copy_from_slice(&[0x95, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn kernel_a_rejection_by_the_verifier_is_an_error_with_its_log() {
        let sys_root = Path::new("/sys");
        let cpus = Cpus::read(sys_root).unwrap();
        let types = KernelTypes::read(sys_root).unwrap();
        let object = object_that_no_verifier_takes();
        let error = Program::load_object(&object, sys_root, &types, &cpus).unwrap_err();
        assert_eq!(error.reason(), "verifier_rejected", "{error:?}");
        assert!(error.to_string().contains("unreachable insn 1"), "{error}");
    }

    #[test]
    fn a_kernel_without_btf_is_reported() {
        let sys_root = tempfile::tempdir().unwrap();
        assert_eq!(KernelTypes::read(sys_root.path()).unwrap_err().reason(), "no_btf");
    }

    /// A copy of this kernel's BTF with these names changed.
    fn sys_root_without(names: &[&str]) -> tempfile::TempDir {
        let sys_root = tempfile::tempdir().unwrap();
        let mut btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        for name in names {
            let at = memchr::memmem::find(&btf, format!("\0{name}\0").as_bytes());
            // This kernel has only one of the two pairs.
            if let Some(at) = at {
                btf[at + 1] = b'x';
            }
        }
        std::fs::create_dir_all(sys_root.path().join("kernel/btf")).unwrap();
        std::fs::write(sys_root.path().join("kernel/btf/vmlinux"), btf).unwrap();
        sys_root
    }

    #[test]
    fn kernel_types_without_throttle_fields_turn_the_trace_off() {
        let cpus = Cpus::read(Path::new("/sys")).unwrap();
        let sys_root =
            sys_root_without(&["throttled_clock_self_time", "throttled_clock_pelt_time"]);
        let load =
            |sys_root: &Path| Program::load(sys_root, &KernelTypes::read(sys_root).unwrap(), &cpus);
        let error = load(sys_root.path()).unwrap_err();
        assert_eq!(error.reason(), "no_throttle_fields", "{error:?}");
        assert!(
            error.to_string().ends_with("throttle_count and throttled_clock_pelt_time"),
            "{error}"
        );
        let unchanged = sys_root_without(&[]);
        load(unchanged.path()).unwrap_or_else(|error| panic!("{error:?}"));
    }

    #[test]
    fn lockdown_is_read_from_securityfs() {
        let sys_root = tempfile::tempdir().unwrap();
        assert!(!is_locked_down(sys_root.path()));
        let directory = sys_root.path().join("kernel/security");
        std::fs::create_dir_all(&directory).unwrap();
        for (modes, expected) in [
            ("[none] integrity confidentiality\n", false),
            ("none integrity [confidentiality]\n", true),
        ] {
            std::fs::write(directory.join("lockdown"), modes).unwrap();
            assert_eq!(is_locked_down(sys_root.path()), expected);
        }
    }

    #[test]
    fn halves_of_all_cpus_are_distinguished() {
        // Two CPUs, two halves, two slots.
        let table = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(half_of(&table, 2, 0).copied().collect::<Vec<_>>(), [1, 2, 5, 6]);
        assert_eq!(half_of(&table, 2, 1).copied().collect::<Vec<_>>(), [3, 4, 7, 8]);
    }
}
