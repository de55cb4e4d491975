//! Addresses of variables in an executable's symbol table (`.symtab`), by name. Both tables are read
//! in chunks: those of large programs have tens of megabytes.

use memchr::memmem::Finder;

use crate::elf::{Elf, Place, Pread};

/// A variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Address, before relocation.
    pub(crate) address: u64,
    /// Size, bytes.
    pub(crate) size: u64,
}

/// Maximum size of each table, bytes: some four times those of the largest programs.
const MAX_TABLE_BYTES: u64 = 64 << 20;
/// Size of the chunks: a multiple of an entry of the symbol table.
const CHUNK_BYTES: usize = ENTRY_BYTES * 4096;
/// `Elf64_Sym`: name (u32), info, other, section (u16), value (u64), size (u64).
const ENTRY_BYTES: usize = 24;
/// Maximum number of texts that end with the name of a variable, such as `x/runtime.work`.
const MAX_TEXTS: usize = 64;
/// Symbol type of variables.
const STT_OBJECT: u8 = 1;

/// The variables with these names, in their order. `None` for one that the table lacks.
pub(crate) fn find<const N: usize>(
    elf: &Elf<impl Pread>,
    names: [&str; N],
) -> Option<[Option<Symbol>; N]> {
    let is_small = |place: &Place| place.size <= MAX_TABLE_BYTES;
    let table = elf.place(b".symtab").filter(is_small)?;
    let texts = elf.place(b".strtab").filter(is_small)?;
    let wanted = text_offsets(elf, texts, &names)?;
    let mut found = [None; N];
    let mut buffer = vec![0; CHUNK_BYTES];
    for at in (0..table.size).step_by(CHUNK_BYTES) {
        let length = CHUNK_BYTES.min(usize::try_from(table.size - at).ok()?);
        let chunk = &mut buffer[..length];
        elf.fill(chunk, table.offset.checked_add(at)?)?;
        for entry in chunk.chunks_exact(ENTRY_BYTES) {
            let name = u32::from_le_bytes(entry[..4].try_into().ok()?);
            let Some(&(_, which)) = wanted.iter().find(|(offset, _)| *offset == name) else {
                continue;
            };
            if entry[4] & 0xf == STT_OBJECT {
                let word = |at: usize| entry[at..at + 8].try_into().map(u64::from_le_bytes);
                found[which] = Some(Symbol { address: word(8).ok()?, size: word(16).ok()? });
            }
        }
    }
    Some(found)
}

/// Offsets of the names in the table of texts, each with its place in `names`. Linkers merge a text
/// into a longer one with the same end, so the byte before it does not matter.
fn text_offsets(elf: &Elf<impl Pread>, texts: Place, names: &[&str]) -> Option<Vec<(u32, usize)>> {
    let ended: Vec<_> = names.iter().map(|name| format!("{name}\0")).collect();
    let finders: Vec<_> = ended.iter().map(Finder::new).collect();
    let overlap = ended.iter().map(String::len).max()?;
    let mut offsets = Vec::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let length = CHUNK_BYTES.min(usize::try_from(texts.size - at).ok()?);
        let chunk = &mut buffer[..length];
        elf.fill(chunk, texts.offset.checked_add(at)?)?;
        for (which, finder) in finders.iter().enumerate() {
            let found = finder.find_iter(chunk);
            let offset = |place: usize| u32::try_from(at + place as u64).ok();
            offsets.extend(found.filter_map(offset).map(|offset| (offset, which)).take(MAX_TEXTS));
        }
        if offsets.len() > MAX_TEXTS {
            return None;
        }
        if at + length as u64 == texts.size {
            return Some(offsets);
        }
        at += (length - overlap) as u64;
    }
}
