//! Sections of a 64-bit little-endian ELF file by name, with bounded reads. The file is untrusted:
//! the container's owner may have written it.
//!
//! `object` parses the headers, from buffers that are read here: its `ReadCache` allocates each
//! size that the file states, up to the file's length, which a sparse file makes arbitrary.

use std::io;

use memchr::memmem;
use object::elf::FileHeader64;
use object::read::StringTable;
use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable};
use object::{LittleEndian, elf, pod};

/// A `pread`: fills a buffer from an offset in the file.
pub(crate) trait Pread: Fn(&mut [u8], u64) -> io::Result<()> {}

impl<F: Fn(&mut [u8], u64) -> io::Result<()>> Pread for F {}

/// Section headers of an ELF file.
#[derive(Debug)]
pub(crate) struct Elf<R> {
    read: R,
    /// Instruction set: `EM_X86_64` and the like.
    pub(crate) machine: u16,
    /// Address of the first instruction, before relocation.
    pub(crate) entry: u64,
    /// Section headers, in words: they must be aligned.
    headers: Vec<u64>,
    names: Vec<u8>,
}

const HEADER_WORDS: usize = 8;
const SECTION_WORDS: usize = 8;
/// Linkers write some 50 sections.
const MAX_SECTIONS: usize = 1024;
const MAX_NAMES_BYTES: usize = 64 << 10;
/// Number of bytes of a section that are searched at once: they fit into a CPU's cache.
const CHUNK_BYTES: usize = 64 << 10;
/// Number of bytes returned after a mark.
const BEHIND_BYTES: usize = 48;

/// Place of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address in memory, before relocation.
    pub(crate) address: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Size, bytes.
    pub(crate) size: u64,
}

impl<R: Pread> Elf<R> {
    /// Reads the headers; `None` if this is not such a file.
    pub(crate) fn new(read: R) -> Option<Self> {
        let mut header = [0_u64; HEADER_WORDS];
        read(pod::bytes_of_slice_mut(&mut header), 0).ok()?;
        let header = FileHeader64::<LittleEndian>::parse(pod::bytes_of_slice(&header)).ok()?;
        header.endian().ok()?;
        let sections = usize::from(header.e_shnum(LittleEndian));
        let section_bytes = usize::from(header.e_shentsize(LittleEndian));
        if section_bytes != 8 * SECTION_WORDS || sections > MAX_SECTIONS {
            return None;
        }
        let headers = vec![0; SECTION_WORDS * sections];
        let (machine, entry) = (header.e_machine(LittleEndian), header.e_entry(LittleEndian));
        let mut elf = Self { read, machine, entry, headers, names: Vec::new() };
        let at = header.e_shoff(LittleEndian);
        (elf.read)(pod::bytes_of_slice_mut(&mut elf.headers), at).ok()?;
        let of_names = usize::from(header.e_shstrndx(LittleEndian));
        let names = elf.sections()?.iter().nth(of_names)?.file_range(LittleEndian)?;
        elf.names = elf.bytes(names, MAX_NAMES_BYTES)?;
        Some(elf)
    }

    /// The first bytes of a section, at most `most`.
    pub(crate) fn section(&self, name: &[u8], most: usize) -> Option<Vec<u8>> {
        self.bytes(self.range(name)?, most)
    }

    /// Up to 48 bytes after the first `mark` within the first `most` bytes of a section.
    pub(crate) fn behind(&self, name: &[u8], mark: &[u8], most: u64) -> Option<Vec<u8>> {
        let (offset, size) = self.range(name)?;
        let end = offset.checked_add(size.min(most))?;
        let (mut at, mut buffer) = (offset, vec![0; CHUNK_BYTES]);
        while at < end {
            let length = CHUNK_BYTES.min(usize::try_from(end - at).ok()?);
            let chunk = &mut buffer[..length];
            (self.read)(chunk, at).ok()?;
            let is_last = at + length as u64 == end;
            match memmem::find(chunk, mark) {
                Some(found) if is_last || found + mark.len() + BEHIND_BYTES <= length => {
                    let behind = &chunk[found + mark.len()..];
                    return Some(behind[..BEHIND_BYTES.min(behind.len())].to_owned());
                }
                // The mark is at the edge of the chunk: search again from there.
                Some(found) => at += found as u64,
                None if is_last => return None,
                None => at += (length - mark.len()) as u64,
            }
        }
        None
    }

    /// Place of a section; `None` if the file has none with this name, or it has no bytes.
    pub(crate) fn place(&self, name: &[u8]) -> Option<Place> {
        let (_, section) = self.sections()?.section_by_name(LittleEndian, name)?;
        let (offset, size) = section.file_range(LittleEndian)?;
        Some(Place { address: section.sh_addr(LittleEndian), offset, size })
    }

    /// Whether these bytes of memory are variables: within one writable section.
    pub(crate) fn is_variable(&self, address: u64, size: u64) -> bool {
        let Some(end) = address.checked_add(size) else { return false };
        self.sections().is_some_and(|sections| {
            sections.iter().any(|section| {
                let start = section.sh_addr(LittleEndian);
                let is_writable = section.sh_flags(LittleEndian) & u64::from(elf::SHF_WRITE) != 0;
                let has = |bytes| start.checked_add(bytes).is_some_and(|last| end <= last);
                is_writable && start > 0 && start <= address && has(section.sh_size(LittleEndian))
            })
        })
    }

    /// Fills a buffer from an offset in the file; `None` if it cannot be read.
    pub(crate) fn fill(&self, buffer: &mut [u8], at: u64) -> Option<()> {
        (self.read)(buffer, at).ok()
    }

    fn sections(&self) -> Option<SectionTable<'_, FileHeader64<LittleEndian>>> {
        let headers = pod::slice_from_all_bytes(pod::bytes_of_slice(&self.headers)).ok()?;
        let names = StringTable::new(&*self.names, 0, self.names.len() as u64);
        Some(SectionTable::new(headers, names))
    }

    /// Offset and size of a section in the file.
    fn range(&self, name: &[u8]) -> Option<(u64, u64)> {
        let (_, section) = self.sections()?.section_by_name(LittleEndian, name)?;
        section.file_range(LittleEndian)
    }

    fn bytes(&self, (offset, size): (u64, u64), most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?.min(most)];
        (self.read)(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const HEADER_BYTES: usize = 8 * HEADER_WORDS;
    const SECTION_BYTES: usize = 8 * SECTION_WORDS;

    fn of(bytes: &[u8]) -> Option<Elf<impl Pread>> {
        Elf::new(move |buffer: &mut [u8], at: u64| {
            let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..buffer.len()));
            from.map(|from| buffer.copy_from_slice(from))
                .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })
    }

    #[test]
    fn sections_of_a_real_binary_are_found_by_their_whole_names() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::new(|buffer: &mut [u8], at| file.read_exact_at(buffer, at)).unwrap();
        assert!(elf.section(b".interp", 4096).unwrap().starts_with(b"/lib"));
        assert_eq!(elf.section(b".interp", 4).unwrap(), b"/lib");
        assert_eq!(elf.section(b".inter", 4096), None);
    }

    #[test]
    fn a_mark_is_found_wherever_it_stands_to_the_edge_of_a_chunk() {
        let offset = HEADER_BYTES + SECTION_BYTES * 2;
        for at in [
            0,
            1,
            CHUNK_BYTES - 60,
            CHUNK_BYTES - 8,
            CHUNK_BYTES - 5,
            CHUNK_BYTES - 4,
            CHUNK_BYTES,
            80_000,
        ] {
            let mut file = b"\x7fELF\x02\x01\x01".to_vec();
            file.resize(offset + at, 0);
            file.extend(b"mark1.2");
            let size = file.len() - offset;
            file[0x28..0x30].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
            file[0x3a..0x40].copy_from_slice(&[64, 0, 2, 0, 1, 0]);
            // Two sections: the searched one, whose name is at offset 0 of the second, and the one
            // with the names.
            let names = file.len();
            file.extend(b".x\0");
            for (section, (place, size)) in [(offset, size), (names, 3)].into_iter().enumerate() {
                let header = HEADER_BYTES + SECTION_BYTES * section;
                file[header + 0x18..header + 0x20].copy_from_slice(&(place as u64).to_le_bytes());
                file[header + 0x20..header + 0x28].copy_from_slice(&(size as u64).to_le_bytes());
            }
            let elf = of(&file).unwrap();
            assert_eq!(
                elf.behind(b".x", b"mark", 1 << 20).as_deref(),
                Some(&b"1.2"[..]),
                "at {at}"
            );
            assert_eq!(elf.behind(b".x", b"mark", at as u64 + 3), None, "at {at}");
            assert_eq!(elf.behind(b".x", b"Mark", 1 << 20), None, "at {at}");
        }
    }

    #[test]
    fn truncated_or_invalid_files_give_none_without_a_panic() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        assert!(
            (0..HEADER_BYTES + 8)
                .chain([whole.len() / 2])
                .all(|length| of(&whole[..length]).is_none())
        );
        // A 32-bit file, and a big-endian one.
        for (at, value) in [(4, 1), (5, 2)] {
            let mut other = whole.clone();
            other[at] = value;
            assert!(of(&whole).is_some() && of(&other).is_none(), "byte {at}");
        }
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(HEADER_BYTES, 0xff);
        assert!(of(&header).is_none());
        // Valid section header size, but 65,535 headers.
        header[0x3a..0x3c].copy_from_slice(&[64, 0]);
        assert!(of(&header).is_none());
        assert!(of(b"#!/bin/sh\n").is_none());
        let of_many = |sections: usize| {
            let mut file = b"\x7fELF\x02\x01\x01".to_vec();
            file.resize(HEADER_BYTES + SECTION_BYTES * sections, 0);
            file[0x28..0x30].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
            file[0x3a..0x3e].copy_from_slice(&[64, 0, sections as u8, (sections >> 8) as u8]);
            of(&file).is_some()
        };
        assert!(of_many(MAX_SECTIONS) && !of_many(MAX_SECTIONS + 1));
    }
}
