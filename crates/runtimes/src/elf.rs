//! Sections of a 64-bit little-endian ELF file by name, with bounded reads. The file is untrusted:
//! the container's owner may have written it.

use std::io;

use memchr::memmem;

/// A `pread`: fills a buffer from an offset in the file.
pub(crate) trait Pread: Fn(&mut [u8], u64) -> io::Result<()> {}

impl<F: Fn(&mut [u8], u64) -> io::Result<()>> Pread for F {}

/// Section headers of an ELF file.
#[derive(Debug)]
pub(crate) struct Elf<R> {
    read: R,
    headers: Vec<u8>,
    names: Vec<u8>,
}

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
/// Linkers write some 50 sections.
const MAX_SECTIONS: usize = 1024;
const MAX_NAMES_BYTES: usize = 64 << 10;
/// Number of bytes of a section that are searched at once: they fit into a CPU's cache.
const CHUNK_BYTES: usize = 64 << 10;
/// Number of bytes returned after a mark.
const BEHIND_BYTES: usize = 48;

impl<R: Pread> Elf<R> {
    /// Reads the headers; `None` if this is not such a file.
    pub(crate) fn new(read: R) -> Option<Self> {
        let mut header = [0; HEADER_BYTES];
        read(&mut header, 0).ok()?;
        if !header.starts_with(b"\x7fELF\x02\x01")
            || usize::from(u16_at(&header, 0x3a)?) != SECTION_BYTES
        {
            return None;
        }
        let sections = usize::from(u16_at(&header, 0x3c)?);
        if sections > MAX_SECTIONS {
            return None;
        }
        let mut elf = Self { read, headers: vec![0; SECTION_BYTES * sections], names: Vec::new() };
        (elf.read)(&mut elf.headers, u64_at(&header, 0x28)?).ok()?;
        let names = place(
            elf.headers.chunks_exact(SECTION_BYTES).nth(usize::from(u16_at(&header, 0x3e)?))?,
        )?;
        elf.names = elf.bytes(names, MAX_NAMES_BYTES)?;
        Some(elf)
    }

    /// The first bytes of a section, at most `most`.
    pub(crate) fn section(&self, name: &[u8], most: usize) -> Option<Vec<u8>> {
        self.bytes(self.place(name)?, most)
    }

    /// Up to 48 bytes after the first `mark` within the first `most` bytes of a section.
    pub(crate) fn behind(&self, name: &[u8], mark: &[u8], most: u64) -> Option<Vec<u8>> {
        let (offset, size) = self.place(name)?;
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

    fn place(&self, name: &[u8]) -> Option<(u64, u64)> {
        let is_named = |header: &&[u8]| {
            let text = u32_at(header, 0).and_then(|at| self.names.get(usize::try_from(at).ok()?..));
            text.is_some_and(|text| {
                text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
            })
        };
        place(self.headers.chunks_exact(SECTION_BYTES).find(is_named)?)
    }

    fn bytes(&self, (offset, size): (u64, u64), most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?.min(most)];
        (self.read)(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

/// Offset and size of a section in the file.
fn place(header: &[u8]) -> Option<(u64, u64)> {
    Some((u64_at(header, 0x18)?, u64_at(header, 0x20)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;

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
            let mut file = b"\x7fELF\x02\x01".to_vec();
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
        let mut header = b"\x7fELF\x02\x01".to_vec();
        header.resize(HEADER_BYTES, 0xff);
        assert!(of(&header).is_none());
        // Valid section header size, but 65,535 headers.
        header[0x3a..0x3c].copy_from_slice(&[64, 0]);
        assert!(of(&header).is_none());
        assert!(of(b"#!/bin/sh\n").is_none());
        let of_many = |sections: usize| {
            let mut file = b"\x7fELF\x02\x01".to_vec();
            file.resize(HEADER_BYTES + SECTION_BYTES * sections, 0);
            file[0x28..0x30].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
            file[0x3a..0x3e].copy_from_slice(&[64, 0, sections as u8, (sections >> 8) as u8]);
            of(&file).is_some()
        };
        assert!(of_many(MAX_SECTIONS) && !of_many(MAX_SECTIONS + 1));
    }
}
