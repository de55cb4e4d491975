//! Places of functions in Go's table of functions (`.gopclntab`), by name. Every Go executable has
//! it, also after `strip`: the runtime itself needs it for stack traces. Its format since Go 1.18 is
//! in `internal/abi/symtab.go`, `debug/gosym/pclntab.go` and `runtime/symtab.go` of Go.

use std::collections::HashMap;

use memchr::memmem::Finder;

use crate::elf::{Elf, Place, Pread};

/// Place of a function's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function {
    /// Offset of its first instruction from the start of Go's code.
    pub(crate) start: u32,
    /// Size with the padding up to the next function, bytes.
    pub(crate) size: u32,
}

/// Maximum size of the table, bytes: some three times those of the largest programs.
const MAX_TABLE_BYTES: u64 = 128 << 20;
/// Maximum number of functions, for the same reason.
const MAX_FUNCTIONS: u64 = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;
/// The first four bytes, little-endian, in Go 1.18 and 1.19, and from 1.20.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Sections that contain the table: in position-independent executables of an external linker it is
/// among the data that the loader relocates.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
/// Words of the header after its first eight bytes: number of functions, number of files, start of
/// the code (unused since 1.26), and offsets of the names, compilation units, files, line tables and
/// functions.
const HEADER_WORDS: usize = 8;

/// The functions with these names, in their order; `None` unless all are found.
pub(crate) fn find<const N: usize>(
    elf: &Elf<impl Pread>,
    names: [&str; N],
) -> Option<[Function; N]> {
    let table = SECTIONS.iter().find_map(|name| elf.place(name))?;
    let mut header = [0; 8 + 8 * HEADER_WORDS];
    if table.size > MAX_TABLE_BYTES || (header.len() as u64) > table.size {
        return None;
    }
    elf.fill(&mut header, table.offset)?;
    let magic = u32::from_le_bytes(header[..4].try_into().ok()?);
    if !MAGIC.contains(&magic) || header[7] != 8 {
        return None;
    }
    let word = |at: usize| header[8 + 8 * at..][..8].try_into().map(u64::from_le_bytes).ok();
    let (count, texts, texts_end, functions) = (word(0)?, word(3)?, word(4)?, word(7)?);
    let part = |from: u64, to: u64| {
        let size = to.checked_sub(from).filter(|_| to <= table.size)?;
        Some(Place { address: 0, offset: table.offset.checked_add(from)?, size })
    };
    let names = text_offsets(elf, part(texts, texts_end)?, names)?;
    let functions = part(functions, table.size)?;
    if count > MAX_FUNCTIONS {
        return None;
    }
    let (mut entries, mut details) = (Window::new(functions), Window::new(functions));
    let mut found = [None; N];
    let mut left = N;
    for number in 0..count {
        // Offset of the code, and of the details: offset of the code, offset of the name, …
        let (start, place) = (entries.u32(elf, 8 * number)?, entries.u32(elf, 8 * number + 4)?);
        let name = details.u32(elf, u64::from(place) + 4)?;
        if let Some(&which) = names.get(&name) {
            let end = entries.u32(elf, 8 * number + 8)?;
            let function = Function { start, size: end.checked_sub(start)? };
            left -= usize::from(found[which].replace(function).is_none());
            if left == 0 {
                break;
            }
        }
    }
    let mut whole = [Function { start: 0, size: 0 }; N];
    for (into, one) in whole.iter_mut().zip(found) {
        *into = one?;
    }
    Some(whole)
}

/// Offsets of the names among the texts, each with its place in `names`; `None` unless the texts
/// contain all.
fn text_offsets<const N: usize>(
    elf: &Elf<impl Pread>,
    texts: Place,
    names: [&str; N],
) -> Option<HashMap<u32, usize>> {
    let bounded: Vec<_> = names.iter().map(|name| format!("\0{name}\0")).collect();
    let finders: Vec<_> = bounded.iter().map(Finder::new).collect();
    let overlap = bounded.iter().map(String::len).max()?;
    let mut offsets = HashMap::new();
    let (mut at, mut buffer) = (0, vec![0; CHUNK_BYTES]);
    while offsets.len() < N {
        let length = CHUNK_BYTES.min(usize::try_from(texts.size - at).ok()?);
        let chunk = &mut buffer[..length];
        elf.fill(chunk, texts.offset.checked_add(at)?)?;
        for (which, finder) in finders.iter().enumerate() {
            if let Some(place) = finder.find(chunk) {
                offsets.insert(u32::try_from(at + place as u64 + 1).ok()?, which);
            }
        }
        if at + length as u64 == texts.size {
            break;
        }
        at += (length - overlap) as u64;
    }
    (offsets.len() == N).then_some(offsets)
}

/// A window of a part of the file that moves forward only, so that each byte is read once.
struct Window {
    part: Place,
    bytes: Vec<u8>,
    /// Offset of the window in the part.
    at: u64,
}

impl Window {
    fn new(part: Place) -> Self {
        Self { part, bytes: Vec::new(), at: 0 }
    }

    /// The number at an offset; `None` beyond the part, or before the window.
    fn u32(&mut self, elf: &Elf<impl Pread>, offset: u64) -> Option<u32> {
        let end = offset.checked_add(4).filter(|&end| end <= self.part.size)?;
        if end > self.at + self.bytes.len() as u64 {
            let length = CHUNK_BYTES.min(usize::try_from(self.part.size - offset).ok()?);
            self.bytes.resize(length, 0);
            elf.fill(&mut self.bytes, self.part.offset.checked_add(offset)?)?;
            self.at = offset;
        }
        let from = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from + 4)?.try_into().map(u32::from_le_bytes).ok()
    }
}
