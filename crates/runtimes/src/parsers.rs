//! Properties of the parsers for container data, over a corpus and its mutations: no panic, little
//! memory, no output that is not in the input, and the same result as a simpler parser, or one
//! without bounds.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;

use cgroupfs::bounded;
use corpus::within;
use memchr::memmem;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _};

use crate::elf::{Elf, Pread};
use crate::environment::{ALLOWED, allowed};
use crate::gc::hsperf::PerfData;
use crate::gc::layout::{LAYOUTS, Layout};
use crate::gc::locate::{Addresses, locate};
use crate::go::{self, BuildInfo};
use crate::jvm;
use crate::process::Process;

fn check(parser: &str, tokens: &[&[u8]], property: impl Fn(&[u8])) {
    corpus::run(env!("CARGO_MANIFEST_DIR"), parser, tokens, property);
}

fn elf(bytes: &[u8]) -> Option<Elf<impl Pread>> {
    Elf::new(move |buffer: &mut [u8], at: u64| {
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..buffer.len()));
        from.map(|from| buffer.copy_from_slice(from))
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    })
}

const SECTIONS: [&str; 3] = [".comment", ".go.buildinfo", ".rodata"];
const MARK: &[u8] = b"https://nodejs.org/download/release/v";
/// Memory limit: section headers and names at their maximum, a section, and a chunk of another.
const ELF_BYTES: usize = 512 << 10;

/// The content of a section of a file that was parsed without bounds; `None` unless exactly one
/// section has this name and content.
fn section<'a>(file: &ElfFile64<'a, LittleEndian>, name: &str) -> Option<&'a [u8]> {
    let mut named = file.sections().filter(|section| section.name() == Ok(name));
    let section = named.next().filter(|_| named.next().is_none())?;
    // A section without bytes in the file still has an offset; the alternative encoding of the
    // number of sections is not supported.
    section.file_range()?;
    let is_plain = file.elf_header().e_shnum(LittleEndian) > 0;
    section.data().ok().filter(|data| is_plain && !data.is_empty())
}

#[test]
fn sections_of_elf_files_are_those_found_without_bounds() {
    let tokens: Vec<&[u8]> = SECTIONS.iter().map(|name| name.as_bytes()).chain([MARK]).collect();
    check("elf", &tokens, |bytes| {
        let Some(elf) = within(ELF_BYTES, || elf(bytes)) else { return };
        let other = ElfFile64::<LittleEndian>::parse(bytes).ok();
        for name in SECTIONS {
            let found = within(ELF_BYTES, || elf.section(name.as_bytes(), 64));
            assert!(
                found
                    .as_ref()
                    .is_none_or(|found| found.len() <= 64 && memmem::find(bytes, found).is_some())
            );
            // The first header has no name in any file from a linker; a mutation may give it one.
            let is_unnamed = elf.section(b"", 0).is_some();
            if let (Some(found), Some(expected), true) =
                (found, other.as_ref().and_then(|it| section(it, name)), is_unnamed)
            {
                assert!(expected.starts_with(&found) || is_first_named(bytes, name), "{name}");
            }
        }
        let behind = within(ELF_BYTES, || elf.behind(b".rodata", MARK, 1 << 20));
        let is_there = |behind: &Vec<u8>| memmem::find(bytes, &[MARK, behind].concat()).is_some();
        assert!(behind.as_ref().is_none_or(|behind| behind.len() <= 48 && is_there(behind)));
    });
}

/// Whether the first section header, which `ElfFile64::sections` skips, has this name.
fn is_first_named(bytes: &[u8], name: &str) -> bool {
    let u64_at = |at: usize| {
        bytes.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
    };
    let header = u64_at(0x28).and_then(|at| usize::try_from(at).ok());
    let first = header.and_then(|at| bytes.get(at..at.checked_add(4)?));
    first.is_none_or(|word| word != [0; 4]) || name.is_empty()
}

#[test]
fn both_kinds_of_elf_files_of_the_corpus_are_understood() {
    for file in ["linked", "object"] {
        let path = format!("{}/tests/corpus/elf/{file}", env!("CARGO_MANIFEST_DIR"));
        let bytes = fs::read(path).expect("it is in the corpus");
        let elf = elf(&bytes).expect("an ELF file");
        let info = go::parse(&elf.section(b".go.buildinfo", go::MAX_BYTES).expect("of Go"))
            .expect("of Go 1.18");
        assert_eq!(
            (info.version.as_deref(), info.module.as_deref()),
            (Some("go1.25.1"), Some("example.org/shop"))
        );
        assert!(
            elf.section(b".comment", 4096).is_some_and(|text| memmem::find(
                &text,
                b"rustc version 1.95.0"
            )
            .is_some())
        );
        assert!(
            elf.behind(b".rodata", MARK, 1 << 20).is_some_and(|text| text.starts_with(b"20.20.2/"))
        );
    }
}

/// A section with build information in the format of Go 1.18 and later.
fn buildinfo(info: &BuildInfo) -> Vec<u8> {
    let depends = |does: bool, module: &str| {
        if does { format!("dep\t{module}\tv1.0.0\th1:x\n") } else { String::new() }
    };
    let modules = [
        depends(info.automaxprocs, "go.uber.org/automaxprocs"),
        depends(info.automemlimit, "github.com/KimMachineGun/automemlimit"),
        format!("build\tDefaultGODEBUG={}\n", info.godebug),
        info.module.as_ref().map_or(String::new(), |module| format!("path\t{module}")),
    ];
    let modules = [&[b'<'; 16][..], modules.concat().as_bytes(), &[b'>'; 16]].concat();
    let version = info.version.as_deref().unwrap_or_default();
    let mut bytes = [&b"\xff Go buildinf:\x08\x02"[..], &[0; 16]].concat();
    for text in [version.as_bytes(), &modules] {
        let mut length = text.len();
        while length > 0x7f {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(text);
    }
    bytes
}

#[test]
fn build_information_of_go_reads_back_as_written() {
    let tokens: [&[u8]; 5] = [
        b"path\t",
        b"mod\t",
        b"dep\tgo.uber.org/automaxprocs\t",
        b"build\tDefaultGODEBUG=",
        b"go1.9",
    ];
    check("go_buildinfo", &tokens, |bytes| {
        // The text is decoded, which can turn one byte into three, and some of its lines are kept.
        let Some(info) = within(4096 + 16 * bytes.len(), || go::parse(bytes)) else { return };
        assert_eq!(go::parse(&buildinfo(&info)), Some(info.clone()));
        assert!(
            info.version.is_none_or(|version| version.starts_with("go") && version.len() <= 40)
        );
        assert!(info.module.is_none_or(|module| module.len() <= bounded::MODULE_BYTES));
        assert!(
            info.godebug
                .split(',')
                .filter(|pair| !pair.is_empty())
                .all(|pair| pair.contains("maxprocs="))
        );
    });
}

#[test]
fn only_allowed_variables_of_the_environment_are_kept() {
    let tokens: Vec<&[u8]> = ALLOWED.iter().map(|name| name.as_bytes()).collect();
    check("environ", &tokens, |bytes| {
        let kept = within(4096 + 4 * bytes.len(), || allowed(bytes));
        let mut expected = BTreeMap::new();
        // A variable truncated by the limit is left out.
        let whole = if bytes.len() < bounded::ENVIRON_BYTES {
            bytes
        } else {
            &bytes[..memchr::memrchr(0, bytes).map_or(0, |last| last + 1)]
        };
        for pair in whole.split(|&byte| byte == 0) {
            let Some((name, value)) =
                std::str::from_utf8(pair).ok().and_then(|pair| pair.split_once('='))
            else {
                continue;
            };
            if ALLOWED.contains(&name) {
                expected.insert(name.to_owned(), value.to_owned());
            }
        }
        assert_eq!(kept, expected);
        let written: String =
            kept.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
        assert_eq!(allowed(written.as_bytes()), kept);
    });
}

#[test]
fn flags_of_a_jvm_are_words_before_its_main_class() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("1")).expect("a directory");
    let process = Process::new(directory.path(), 1);
    check("cmdline", &[b"-Xmx", b"-cp", b"-jar", b"@", b"-XX:MaxRAMPercentage="], |bytes| {
        fs::write(directory.path().join("1/cmdline"), bytes).expect("written");
        let words = within(8192 + 64 * bytes.len(), || process.arguments());
        assert!(words.iter().map(String::len).sum::<usize>() <= 3 * bounded::CMDLINE_BYTES);
        let mut settings = BTreeMap::new();
        within(4096 + 4 * bytes.len(), || jvm::flags(jvm::options(&words), &mut settings));
        for (name, value) in settings {
            let is_end = |word: &String| word.ends_with(&value) || word.ends_with(&name);
            let flag = |word: &String| word.starts_with(['-', '@']) && is_end(word);
            assert!(words.iter().any(flag), "{name}={value}");
        }
    });
}

#[test]
fn the_version_of_a_jvm_is_one_line_of_its_release_file() {
    check("jvm_release", &[b"JAVA_VERSION=", b"JAVA_VERSION=\"21\"\n", b"\""], |bytes| {
        let version = within(4096, || jvm::of_release(bytes));
        let line =
            bytes.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"JAVA_VERSION="));
        let text =
            line.and_then(|line| std::str::from_utf8(line.trim_ascii()).ok()).unwrap_or_default();
        let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let is_one = |text: &&str| {
            let is_part = |char: char| char.is_ascii_alphanumeric() || ".-+_~".contains(char);
            text.len() <= 40
                && text.contains(|char: char| char.is_ascii_digit())
                && text.chars().all(is_part)
        };
        assert_eq!(version.as_deref(), quoted.filter(is_one));
    });
}

/// Memory limit: that of a file's sections, two chunks of its symbols or functions, and the code that
/// may contain C's start-up.
const GO_BYTES: usize = ELF_BYTES + (512 << 10);

#[test]
fn variables_of_a_go_runtime_are_within_a_writable_section() {
    let tokens: [&[u8]; 5] = [
        b".symtab",
        b".gopclntab",
        b"runtime.gcController\0",
        b"runtime.putfull\0",
        b"\x48\x8d\x05",
    ];
    check("go_runtime", &tokens, |bytes| {
        let Some(elf) = within(ELF_BYTES, || elf(bytes)) else { return };
        for layout in &LAYOUTS {
            let Some(found) = within(GO_BYTES, || locate(&elf, layout)) else { continue };
            assert!(elf.is_variable(found.controller, layout.controller_bytes));
            assert!(elf.is_variable(found.stats, layout.stats_bytes));
        }
    });
}

#[test]
fn variables_of_a_go_runtime_are_found_with_and_without_symbols() {
    let found = |file: &str, version: &str| {
        let path = format!("{}/tests/corpus/go_runtime/{file}", env!("CARGO_MANIFEST_DIR"));
        let bytes = fs::read(path).expect("it is in the corpus");
        let elf = elf(&bytes).expect("an ELF file");
        locate(&elf, Layout::of(version).expect("a known version"))
    };
    let expected = Addresses {
        entry: 0x40_1000,
        controller: 0x50_0000,
        stats: 0x50_0400,
        max_procs: 0x50_0380,
        cpu_stats: Some(0x50_3000 + 816 - 88),
    };
    for file in ["symbols", "stripped", "stripped-cgo"] {
        assert_eq!(found(file, "go1.26.8"), Some(expected), "{file}");
    }
    assert_eq!(found("arm64", "go1.26.8"), None, "its code is not understood");
    // The variables have the sizes of Go 1.26, which only the symbols tell.
    assert_eq!(found("symbols", "go1.25.0"), None);
    assert_eq!(found("stripped", "go1.25.0"), Some(expected));
}

/// Executables of the corpus whose variables are found.
fn go_executables() -> [Vec<u8>; 3] {
    ["symbols", "stripped", "stripped-cgo"].map(|file| {
        let path = format!("{}/tests/corpus/go_runtime/{file}", env!("CARGO_MANIFEST_DIR"));
        fs::read(path).expect("it is in the corpus")
    })
}

#[test]
fn a_truncated_go_executable_is_refused_or_read_as_the_whole_one() {
    let layout = Layout::of("go1.26.8").expect("a known version");
    for whole in go_executables() {
        let found = |bytes: &[u8]| elf(bytes).and_then(|elf| locate(&elf, layout));
        let expected = found(&whole);
        assert!(expected.is_some());
        for length in 0..whole.len() {
            let truncated = found(&whole[..length]);
            assert!(truncated.is_none() || truncated == expected, "{length} bytes");
        }
    }
}

/// Number of bytes that one analysis may read: both tables of symbols, and two passes over the table of
/// functions.
const GO_READ: u64 = 2 * (64 << 20) + 2 * 2 * (128 << 20) + (1 << 20);

/// Copies of an executable with one of its sections as large as a hostile file would state it, and the
/// executable itself.
fn with_large_sections(whole: &[u8]) -> Vec<Vec<u8>> {
    let at = |at: usize, bytes: usize| {
        let bytes = whole[at..at + bytes].iter().rev();
        bytes.fold(0, |number, &byte| number << 8 | usize::from(byte))
    };
    let (first, count) = (at(0x28, 8), at(0x3c, 2));
    let mut copies = vec![whole.to_vec()];
    for section in 0..count {
        for size in [1_u64 << 40, 128 << 20] {
            let (mut copy, field) = (whole.to_vec(), first + 64 * section + 0x20);
            copy[field..field + 8].copy_from_slice(&size.to_le_bytes());
            copies.push(copy);
        }
    }
    copies
}

/// Copies of a stripped executable in whose table each function in turn has a gibibyte; none of others.
fn with_large_function(whole: &[u8]) -> Vec<Vec<u8>> {
    let table = elf(whole).and_then(|elf| elf.place(b".gopclntab"));
    let Some(table) = table.and_then(|table| usize::try_from(table.offset).ok()) else {
        return Vec::new();
    };
    let word = |at: usize| usize::from(whole[at]) | usize::from(whole[at + 1]) << 8;
    let (count, functions) = (word(table + 8), table + word(table + 8 + 56));
    let with = |large: usize| {
        let mut copy = whole.to_vec();
        // The starts of all functions behind it: bit 30 of each.
        (large + 1..=count).for_each(|number| copy[functions + 8 * number + 3] |= 1 << 6);
        copy
    };
    (0..count).map(with).collect()
}

/// Reads from a file without an end, as a sparse one, and counts the bytes.
fn endless<'a>(file: &'a [u8], read: &'a Cell<u64>) -> impl Pread + 'a {
    move |buffer: &mut [u8], at: u64| {
        read.set(read.get() + buffer.len() as u64);
        let known = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or_default();
        let length = known.len().min(buffer.len());
        buffer[..length].copy_from_slice(&known[..length]);
        buffer[length..].fill(0);
        Ok(())
    }
}

/// Searches an endless file within bounds of memory and of bytes read; returns whether it has variables.
fn is_found_within_bounds(file: &[u8], what: &str) -> bool {
    let layout = Layout::of("go1.26.8").expect("a known version");
    let read = Cell::new(0);
    let Some(elf) = within(ELF_BYTES, || Elf::new(endless(file, &read))) else { return false };
    let found = within(GO_BYTES, || locate(&elf, layout));
    assert!(read.get() <= GO_READ, "{} bytes: {what}", read.get());
    let is_variable =
        |found: &Addresses| elf.is_variable(found.controller, layout.controller_bytes);
    assert!(found.as_ref().is_none_or(is_variable), "{what}");
    found.is_some()
}

/// Each word in turn is a size, count, offset or address that a fake table would state.
#[test]
fn a_go_executable_with_any_hostile_word_is_read_within_bounds() {
    let words = [u64::MAX, 1 << 40, 128 << 20, 0].map(|word| word.to_le_bytes().to_vec());
    let halves = [u32::MAX, 1 << 20].map(|word| word.to_le_bytes().to_vec());
    for whole in go_executables() {
        let mut counts = [0; 2];
        for at in (0..whole.len() - 8).step_by(4) {
            for word in words.iter().chain(&halves) {
                let mut file = whole.clone();
                file[at..at + word.len()].copy_from_slice(word);
                let is_found = is_found_within_bounds(&file, &format!("{word:x?} at {at}"));
                counts[usize::from(is_found)] += 1;
            }
        }
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    }
}

#[test]
fn a_go_executable_with_huge_sections_and_functions_is_read_within_bounds() {
    let [symbols, stripped, cgo] = go_executables();
    assert!(is_found_within_bounds(&stripped, "the whole one"));
    for (number, file) in
        [symbols, stripped, cgo].iter().flat_map(|file| with_large_sections(file)).enumerate()
    {
        is_found_within_bounds(&file, &format!("file {number}"));
        for (large, file) in with_large_function(&file).iter().enumerate() {
            is_found_within_bounds(file, &format!("file {number}, function {large}"));
        }
    }
}

#[test]
fn performance_data_of_a_jvm_is_bounded_and_printable() {
    let tokens: [&[u8]; 3] =
        [b"sun.gc.collector.0.name", b"sun.os.hrt.frequency", b"\xff\xff\xff\x7f"];
    check("hsperfdata", &tokens, |bytes| {
        let Some(data) = within(4096 + 16 * bytes.len(), || PerfData::parse(bytes)) else { return };
        let Some(found) = data.collections() else { return };
        let is_there = |name: &String| memmem::find(bytes, name.as_bytes()).is_some();
        assert!(!found.collectors.is_empty() && found.collectors.iter().all(is_there));
        let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        assert!(found.collectors.iter().all(|name| name.bytes().all(is_printable)));
    });
}

#[test]
fn collections_of_each_collector_are_read() {
    let of = |file: &str| {
        let path = format!("{}/tests/corpus/hsperfdata/{file}", env!("CARGO_MANIFEST_DIR"));
        let bytes = fs::read(path).expect("it is in the corpus");
        PerfData::parse(&bytes).and_then(|data| data.collections()).expect("a JVM's data")
    };
    const HEAP: u64 = 64 << 20;
    for (file, cycles, cpu_ns, first) in [
        ("17-serial", 274, None, "Serial young collection pauses"),
        ("17-z", 247, None, "Z concurrent cycle pauses"),
        ("25-g1", 121, Some(123_082_534), "G1 young collection pauses"),
        ("25-z", 421 + 124, None, "ZGC minor collection pauses"),
    ] {
        let found = of(file);
        assert_eq!((found.cycles, found.cpu_ns), (cycles, cpu_ns), "{file}");
        assert_eq!(found.collectors[0], first, "{file}");
        // -Xmx64m
        assert_eq!(found.max_bytes, Some(HEAP), "{file}");
        assert!(found.capacity_bytes.is_some_and(|bytes| bytes <= HEAP), "{file}");
        assert!(found.used_bytes.is_some_and(|bytes| bytes > 1 << 20), "{file}");
        // Pauses are stops at safepoints.
        assert!(found.safepoint_ns.is_some_and(|stopped| stopped >= found.pause_ns), "{file}");
    }
}
