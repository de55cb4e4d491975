//! The memory of a process. Reading it needs the right to trace the process (PTRACE_MODE_ATTACH),
//! but neither attaches to the process nor stops it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use cgroupfs::bounded;
use snapshot::GcUnread;

use crate::process::Process;

/// Memory of a process whose executable was loaded at a known distance from its own addresses.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
    bias: u64,
}

/// Entry of the auxiliary vector with the address of the first instruction.
const AT_ENTRY: u64 = 9;

impl Memory {
    /// Opens the memory of a process. `entry` is the address of the first instruction in the
    /// executable.
    pub(crate) fn open(process: &Process, entry: u64) -> Result<Self, GcUnread> {
        let actual = entry_of(&process.auxv()).ok_or(GcUnread::NoAnswer)?;
        let file = bounded::open(&process.mem()).map_err(|error| unread(&error))?;
        Ok(Self { file, bias: actual.wrapping_sub(entry) })
    }

    /// Fills a buffer from an address of the executable.
    pub(crate) fn read(&self, buffer: &mut [u8], address: u64) -> Result<(), GcUnread> {
        let at = self.bias.wrapping_add(address);
        self.file.read_exact_at(buffer, at).map_err(|error| unread(&error))
    }
}

/// Address of the first instruction, in an auxiliary vector: pairs of a key and a value.
fn entry_of(auxv: &[u8]) -> Option<u64> {
    let (words, _) = auxv.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let entry = pairs.iter().find(|[key, _]| u64::from_le_bytes(*key) == AT_ENTRY);
    entry.map(|[_, value]| u64::from_le_bytes(*value))
}

fn unread(error: &io::Error) -> GcUnread {
    match error.kind() {
        io::ErrorKind::PermissionDenied => GcUnread::NotPermitted,
        _ => GcUnread::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_found_among_the_pairs_of_the_vector() {
        let vector = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let of = |words: &[u64]| entry_of(&{ vector(words) } as &Vec<u8>);
        assert_eq!(of(&[3, 64, 9, 0x40_1000, 0, 0]), Some(0x40_1000));
        // A value is no key.
        assert_eq!(of(&[3, 9, 0, 0]), None);
        assert_eq!(of(&[9]), None);
    }
}
