//! Addresses of the collector's variables in a Go executable: from its symbol table, else from the
//! code of functions that use them.
//!
//! The code of these functions is the same in all known versions: the address of a variable is
//! loaded into RAX, the receiver, shortly before the call of a method. Only the call is searched,
//! whose target is known, so that no instruction has to be decoded before it.

use crate::elf::{Elf, Place, Pread};
use crate::gc::layout::{CPU_STATS_BYTES, CpuStats, Layout};
use crate::gc::pclntab::{self, Function};
use crate::gc::symbols::{self, Symbol};

/// Addresses of the collector's variables, before relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Address of the first instruction, which the process reports after relocation.
    pub(crate) entry: u64,
    /// `runtime.gcController`.
    pub(crate) controller: u64,
    /// `runtime.memstats`.
    pub(crate) stats: u64,
    /// `runtime.gomaxprocs`.
    pub(crate) max_procs: u64,
    /// `runtime.work.cpuStats`; `None` before Go 1.20.
    pub(crate) cpu_stats: Option<u64>,
}

/// Size of `runtime.gomaxprocs`, an `int32`.
const MAX_PROCS_BYTES: u64 = 4;
/// Maximum size of a searched function, bytes; the largest is `gcMarkTermination`, some 3 KiB.
const MAX_CODE_BYTES: usize = 16 << 10;
/// Bytes in front of a call in which its receiver is loaded.
const BEFORE_CALL_BYTES: usize = 64;
/// Maximum size of C's start-up code, which an external linker places before Go's.
const MAX_SHIFT: u64 = 64 << 10;
/// Alignment of functions in Go.
const FUNCTION_ALIGN: usize = 16;
/// Instruction set.
const EM_X86_64: u16 = 62;

/// The addresses in an executable of this version; `None` if they were not found.
pub(crate) fn locate(elf: &Elf<impl Pread>, layout: &Layout) -> Option<Addresses> {
    let found = by_symbols(elf, layout).unwrap_or_else(|| by_code(elf, layout))?;
    let are_variables = elf.is_variable(found.controller, layout.controller_bytes)
        && elf.is_variable(found.stats, layout.stats_bytes)
        && elf.is_variable(found.max_procs, MAX_PROCS_BYTES)
        && found.cpu_stats.is_none_or(|at| elf.is_variable(at, CPU_STATS_BYTES));
    are_variables.then_some(found)
}

/// The addresses in the symbol table. `None` if it does not have the variables, `Some(None)` if they
/// have other sizes than in this version: then their fields are elsewhere.
fn by_symbols(elf: &Elf<impl Pread>, layout: &Layout) -> Option<Option<Addresses>> {
    let names = ["runtime.gcController", "runtime.memstats", "runtime.gomaxprocs", "runtime.work"];
    let [controller, stats, max_procs, work] = symbols::find(elf, names)?;
    let (controller, stats, max_procs) = (controller?, stats?, max_procs?);
    let sizes = (controller.size, stats.size, max_procs.size);
    let is_known = sizes == (layout.controller_bytes, layout.stats_bytes, MAX_PROCS_BYTES);
    let cpu_stats = match layout.cpu_stats {
        CpuStats::Absent => Some(None),
        CpuStats::At(offset) => cpu_stats(work?, Some(offset)).map(Some),
        CpuStats::Receiver => cpu_stats(work?, None).map(Some),
    };
    Some(cpu_stats.filter(|_| is_known).map(|cpu_stats| Addresses {
        entry: elf.entry,
        controller: controller.address,
        stats: stats.address,
        max_procs: max_procs.address,
        cpu_stats,
    }))
}

/// Address of `work.cpuStats`, the last field; `None` unless it is at this offset.
fn cpu_stats(work: Symbol, expected: Option<u64>) -> Option<u64> {
    let offset = work.size.checked_sub(CPU_STATS_BYTES)?;
    let is_expected = expected.is_none_or(|expected| expected == offset);
    work.address.checked_add(offset).filter(|_| is_expected)
}

fn by_code(elf: &Elf<impl Pread>, layout: &Layout) -> Option<Addresses> {
    if elf.machine != EM_X86_64 {
        return None;
    }
    let [commit_caller, commit, acquire_caller, acquire, resize] = pclntab::find(
        elf,
        [
            "runtime.gcControllerCommit",
            "runtime.(*gcControllerState).commit",
            "runtime.(*mcache).refill",
            "runtime.(*consistentHeapStats).acquire",
            "runtime.procresize",
        ],
    )?;
    let code = Code::new(elf, commit_caller, commit)?;
    let cpu_stats = match layout.cpu_stats {
        CpuStats::Absent => None,
        CpuStats::At(offset) => {
            let names = ["runtime.putfull", "runtime.(*lfstack).push"];
            let [caller, push] = pclntab::find(elf, names)?;
            Some(code.receiver(elf, caller, push)?.checked_add(offset)?)
        }
        CpuStats::Receiver => {
            let names = ["runtime.gcMarkTermination", "runtime.(*cpuStats).accumulate"];
            let [caller, accumulate] = pclntab::find(elf, names)?;
            Some(code.receiver(elf, caller, accumulate)?)
        }
    };
    Some(Addresses {
        entry: elf.entry,
        controller: code.receiver(elf, commit_caller, commit)?,
        stats: code.receiver(elf, acquire_caller, acquire)?,
        max_procs: code.tested(elf, resize)?,
        cpu_stats,
    })
}

/// The code of an executable.
struct Code {
    text: Place,
    /// Offset of Go's code in the section.
    shift: u64,
}

impl Code {
    /// Finds the start of Go's code: where the call from `caller` to `callee` leads there. Its
    /// address is not in the table of functions since Go 1.26, and the loader writes it there in
    /// position-independent executables.
    fn new(elf: &Elf<impl Pread>, caller: Function, callee: Function) -> Option<Self> {
        let text = elf.place(b".text")?;
        let size = usize::try_from(caller.size).ok()?.min(MAX_CODE_BYTES);
        let from = u64::from(caller.start);
        let most = text.size.checked_sub(from.checked_add(size as u64)?)?.min(MAX_SHIFT);
        let mut bytes = vec![0; size + usize::try_from(most).ok()?];
        elf.fill(&mut bytes, text.offset.checked_add(from)?)?;
        // Each call says where the code would have to start, so that one pass is enough.
        let shift = |(at, target): (usize, i64)| {
            let shift = usize::try_from(target - i64::from(callee.start)).ok()?;
            let is_within = (shift..shift + size).contains(&at) && at + 5 <= shift + size;
            (is_within && shift as u64 <= most && shift % FUNCTION_ALIGN == 0).then_some(shift)
        };
        let shift = calls(&bytes, caller).filter_map(shift).min()?;
        Some(Self { text, shift: shift as u64 })
    }

    /// Address that `caller` loads into RAX before it calls `callee`.
    fn receiver(&self, elf: &Elf<impl Pread>, caller: Function, callee: Function) -> Option<u64> {
        let code = self.bytes(elf, caller)?;
        let end = call(&code, caller, callee)?;
        let start = end.saturating_sub(BEFORE_CALL_BYTES);
        // LEA RAX, [RIP + distance]
        let at = code[start..end].windows(7).rposition(|bytes| bytes[..3] == [0x48, 0x8d, 0x05])?;
        self.target(caller, &code, start + at + 3)
    }

    /// Address of the first number that a function loads, tests, and compares with zero: `old :=
    /// gomaxprocs; if old < 0`.
    fn tested(&self, elf: &Elf<impl Pread>, function: Function) -> Option<u64> {
        let code = self.bytes(elf, function)?;
        let is_load = |bytes: &[u8]| {
            // MOV reg, [RIP + distance]; TEST reg, reg; JL
            let register = bytes[1] >> 3 & 7;
            let is_move = bytes[0] == 0x8b && bytes[1] & 0xc7 == 5;
            let is_test = bytes[6..8] == [0x85, 0xc0 | register << 3 | register];
            is_move && is_test && (bytes[8] == 0x7c || bytes[8..10] == [0x0f, 0x8c])
        };
        let at = code.windows(10).position(is_load)?;
        self.target(function, &code, at + 2)
    }

    /// Target of the distance at an offset in a function, which ends its instruction.
    fn target(&self, function: Function, code: &[u8], at: usize) -> Option<u64> {
        let distance = i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?);
        let start =
            self.text.address.checked_add(self.shift)?.checked_add(function.start.into())?;
        start.checked_add(at as u64 + 4)?.checked_add_signed(distance.into())
    }

    fn bytes(&self, elf: &Elf<impl Pread>, function: Function) -> Option<Vec<u8>> {
        let from = self.shift.checked_add(function.start.into())?;
        let left = usize::try_from(self.text.size.checked_sub(from)?).ok()?;
        let size = usize::try_from(function.size).ok()?.min(MAX_CODE_BYTES).min(left);
        let mut bytes = vec![0; size];
        elf.fill(&mut bytes, self.text.offset.checked_add(from)?)?;
        Some(bytes)
    }
}

/// Offset in a function of the first call of another one: `E8` and the distance from its end.
fn call(code: &[u8], caller: Function, callee: Function) -> Option<usize> {
    let mut calls = calls(code, caller);
    calls.find(|&(_, target)| target == i64::from(callee.start)).map(|(at, _)| at)
}

/// Calls in the code of a function: the offset in it, and the target's from the start of Go's code.
fn calls(code: &[u8], caller: Function) -> impl Iterator<Item = (usize, i64)> {
    code.windows(5).enumerate().filter(|(_, bytes)| bytes[0] == 0xe8).filter_map(
        move |(at, bytes)| {
            let distance = i32::from_le_bytes(bytes[1..].try_into().ok()?);
            Some((at, i64::from(caller.start) + at as i64 + 5 + i64::from(distance)))
        },
    )
}
