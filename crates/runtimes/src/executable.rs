//! Runtime and version of an executable, independent of the process.

use std::ffi::OsStr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use api::Language;
use cgroupfs::bounded;

use crate::elf::{Elf, Pread};
use crate::go::{self, BuildInfo};
use crate::process::Process;
use crate::version::{after, leading};
use crate::{dotnet, jvm};

/// An executable with its runtime.
#[derive(Debug, Clone, Default)]
pub(crate) struct Executable {
    pub(crate) language: Language,
    pub(crate) version: Option<String>,
    pub(crate) go: BuildInfo,
}

/// Maximum number of bytes of `.comment` that are searched for compilers' names.
const MAX_COMMENT_BYTES: usize = 4 << 10;
/// Maximum number of bytes of constants that are searched. Node's own come first, before V8's and
/// ICU's: in 18 and 20 within 280 KiB.
const MAX_CONSTANT_BYTES: u64 = 512 << 10;

impl Executable {
    /// Examines the executable of a process; `None` if it may not be read.
    pub(crate) fn of(process: &Process) -> Option<Self> {
        let file = bounded::open(&process.exe()).ok()?;
        let elf = Elf::new(|buffer: &mut [u8], at| file.read_exact_at(buffer, at));
        if let Some(go) =
            elf.as_ref().and_then(|elf| go::parse(&elf.section(b".go.buildinfo", go::MAX_BYTES)?))
        {
            return Some(Self { language: Language::Go, version: go.version.clone(), go });
        }
        let path = process.exe_path();
        let language = path.file_name().and_then(by_name);
        let found = match language {
            Some(Language::Jvm) => Self::new(Language::Jvm, jvm::version(process, &path)),
            Some(Language::Python) => Self::new(Language::Python, python_version(&path)),
            Some(Language::Nodejs) => {
                Self::new(Language::Nodejs, elf.and_then(|elf| node_version(&elf)))
            }
            Some(other) => Self::new(other, None),
            None => elf.and_then(|elf| rust(&elf)).unwrap_or_default(),
        };
        Some(if found.version.is_none() {
            Self::by_library(process).unwrap_or(found)
        } else {
            found
        })
    }

    fn new(language: Language, version: Option<String>) -> Self {
        Self { language, version, go: BuildInfo::default() }
    }

    /// Detects the runtime by its mapped library: for custom launchers, and programs that embed a
    /// runtime.
    fn by_library(process: &Process) -> Option<Self> {
        let (language, path) = process.mapped(|path| {
            let name = path.file_name()?.as_encoded_bytes();
            let (_, language) =
                LIBRARIES.into_iter().find(|(library, _)| name.starts_with(library.as_bytes()))?;
            Some((language, path.to_owned()))
        })?;
        let version = match language {
            Language::Jvm => jvm::version(process, &path),
            Language::Dotnet => dotnet::version(process, &path),
            Language::Python => python_version(&path),
            _ => process.open(&path).and_then(|file| {
                node_version(&Elf::new(|buffer: &mut [u8], at| file.read_exact_at(buffer, at))?)
            }),
        };
        Some(Self::new(language, version))
    }
}

const LIBRARIES: [(&str, Language); 4] = [
    ("libjvm.so", Language::Jvm),
    ("libcoreclr.so", Language::Dotnet),
    ("libnode.so", Language::Nodejs),
    ("libpython", Language::Python),
];

/// Detects launchers with fixed names.
fn by_name(name: &OsStr) -> Option<Language> {
    match name.to_str()? {
        "java" => Some(Language::Jvm),
        "node" | "nodejs" => Some(Language::Nodejs),
        "dotnet" => Some(Language::Dotnet),
        name if name
            .strip_prefix("python")
            .is_some_and(|rest| rest.chars().all(|c| c == '.' || c.is_ascii_digit())) =>
        {
            Some(Language::Python)
        }
        _ => None,
    }
}

/// The version in `python3.11` or `libpython3.11.so.1.0`; only the 3 in `python3`.
fn python_version(path: &Path) -> Option<String> {
    leading(after(path.file_name()?.as_encoded_bytes(), b"python")?)
}

/// The version in the URL of Node's own release, a constant (`process.release.sourceUrl`).
fn node_version(elf: &Elf<impl Pread>) -> Option<String> {
    leading(&elf.behind(
        b".rodata",
        b"https://nodejs.org/download/release/v",
        MAX_CONSTANT_BYTES,
    )?)
}

/// Detects Rust by the compiler's mark in `.comment`. `strip` keeps it, but Debian's packages lack
/// it.
fn rust(elf: &Elf<impl Pread>) -> Option<Executable> {
    let comment = elf.section(b".comment", MAX_COMMENT_BYTES)?;
    Some(Executable::new(Language::Rust, leading(after(&comment, b"rustc version ")?)))
}
