//! Go's build information: the section `.go.buildinfo` of an ELF binary, which `strip` leaves in place.

use std::io;

/// What a Go binary says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// `go1.25.1`; `None` in the format of Go before 1.18, which holds pointers.
    pub version: Option<String>,
    /// Path of the main module or package.
    pub module: Option<String>,
    /// go.uber.org/automaxprocs is among the dependencies.
    pub automaxprocs: bool,
    /// `DefaultGODEBUG` of the build: what go.mod's older version switches off.
    pub godebug: String,
}

/// Bytes of build information that are read at most; large programs have some 30 KB of modules.
const MAX_BYTES: usize = 128 << 10;
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Where the version's length stands, in the format with strings in line (debug/buildinfo).
const INLINE: usize = 32;

/// The build information of an ELF file; `None` when it is no 64-bit little-endian ELF file or not of Go.
///
/// `read` is a `pread`: a buffer and the offset in the file.
pub fn build_info(read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> Option<BuildInfo> {
    let (offset, size) = section(&read, b".go.buildinfo")?;
    let mut bytes = vec![0; usize::try_from(size).ok()?.min(MAX_BYTES)];
    read(&mut bytes, offset).ok()?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Option<BuildInfo> {
    let bytes = bytes.strip_prefix(MAGIC).map(|_| bytes)?;
    if bytes.get(15)? & 2 == 0 {
        return Some(BuildInfo::default());
    }
    let (version, rest) = string(bytes.get(INLINE..)?)?;
    let version = Some(String::from_utf8_lossy(version).into_owned());
    // The modules stand between two marks of 16 bytes.
    let modules = string(rest).and_then(|(text, _)| text.get(16..text.len().checked_sub(16)?)).unwrap_or_default();
    let modules = String::from_utf8_lossy(modules);
    let after = |prefix: &str| modules.lines().find_map(|line| line.strip_prefix(prefix).map(str::to_owned));
    let module = after("mod\t").and_then(|line| line.split('\t').next().map(str::to_owned)).or(after("path\t"));
    let automaxprocs = modules.lines().any(|line| line.starts_with("dep\tgo.uber.org/automaxprocs\t"));
    let godebug = after("build\tDefaultGODEBUG=").unwrap_or_default();
    Some(BuildInfo { version, module, automaxprocs, godebug })
}

/// A string behind its length as a varint.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (at, &byte) in bytes.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return bytes[at + 1..].split_at_checked(length);
        }
    }
    None
}

/// Offset and size of a section, by its name.
fn section(read: &impl Fn(&mut [u8], u64) -> io::Result<()>, name: &[u8]) -> Option<(u64, u64)> {
    let mut header = [0; 64];
    read(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, entry_size) = (u64_at(&header, 0x28)?, usize::from(u16_at(&header, 0x3a)?));
    let (entries, names) = (usize::from(u16_at(&header, 0x3c)?), usize::from(u16_at(&header, 0x3e)?));
    let mut headers = vec![0; entry_size * entries];
    read(&mut headers, table).ok()?;
    let mut headers = headers.chunks_exact(entry_size.max(64));
    let (offset, size) = place(headers.clone().nth(names)?)?;
    let mut texts = vec![0; usize::try_from(size).ok()?.min(MAX_BYTES)];
    read(&mut texts, offset).ok()?;
    let is_named = |header: &&[u8]| {
        let text = u32_at(header, 0).and_then(|at| texts.get(usize::try_from(at).ok()?..));
        text.is_some_and(|text| text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)))
    };
    place(headers.find(is_named)?)
}

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
    use super::*;

    /// As `go build` of 1.22 writes it, with shortened modules.
    fn section_text(version: &str, modules: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([8, 2]);
        bytes.resize(INLINE, 0);
        bytes.push(u8::try_from(version.len()).unwrap());
        bytes.extend(version.bytes());
        let length = modules.len() + 32;
        bytes.extend([u8::try_from(length & 0x7f).unwrap() | 0x80, u8::try_from(length >> 7).unwrap()]);
        bytes.extend([b'<'; 16]);
        bytes.extend(modules.bytes());
        bytes.extend([b'>'; 16]);
        bytes
    }

    const MODULES: &str = "path\texample.org/shop/cmd\nmod\texample.org/shop\t(devel)\t\n\
                           dep\tgo.uber.org/automaxprocs\tv1.6.0\th1:x\nbuild\tDefaultGODEBUG=containermaxprocs=0\n";

    #[test]
    fn version_module_and_dependencies_are_read() {
        let info = parse(&section_text("go1.25.1", MODULES)).unwrap();
        assert_eq!((info.version.as_deref(), info.module.as_deref()), (Some("go1.25.1"), Some("example.org/shop")));
        assert!(info.automaxprocs && info.godebug == "containermaxprocs=0", "{info:?}");
    }

    #[test]
    fn what_is_cut_off_or_foreign_is_none_and_never_a_panic() {
        let whole = section_text("go1.25.1", MODULES);
        for length in 0..41 {
            assert_eq!(parse(&whole[..length]), None, "{length} bytes");
        }
        assert!((41..whole.len()).all(|length| parse(&whole[..length]).unwrap().module.is_none()));
        assert_eq!(parse(b"\xff Ho buildinf:\x08\x02"), None);
    }

    #[test]
    fn before_go_1_18_there_is_no_version() {
        let mut old = section_text("", "");
        old[15] = 0;
        assert_eq!(parse(&old), Some(BuildInfo::default()));
    }

    #[test]
    fn a_binary_of_rust_has_no_build_information() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(build_info(|buffer, at| std::os::unix::fs::FileExt::read_exact_at(&file, buffer, at)), None);
    }

    #[test]
    fn any_header_is_survived() {
        let mut header = b"\x7fELF\x02\x01".to_vec();
        header.resize(64, 0xff);
        assert_eq!(
            build_info(|buffer, _| {
                buffer.fill(0xff);
                Err(io::ErrorKind::UnexpectedEof.into())
            }),
            None
        );
        let read = |buffer: &mut [u8], at: u64| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let bytes = header.get(at..).and_then(|bytes| bytes.get(..buffer.len()));
            bytes.map(|bytes| buffer.copy_from_slice(bytes)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        assert_eq!(build_info(read), None);
    }
}
