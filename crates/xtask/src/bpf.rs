//! The BPF objects: built from C by clang and checked in, so that a machine without clang can build
//! the product.
//!
//! The version of clang is fixed here: another one generates other instructions from the same
//! source, and the verifier judges instructions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::prerequisites::{self, Missing};
use crate::process::{self, CommandError};
use crate::workspace;

const CLANG: &str = "clang-14";
const STRIP: &str = "llvm-strip-14";

/// Names of the objects: `bpf/NAME.bpf.c` is built into `bpf/NAME.bpf.o` in the crate sched-trace.
pub const OBJECTS: [&str; 3] = ["sched_trace", "counters", "empty"];

/// No absolute path may get into the object, so sources are named relative to the crate. v3 is
/// Linux 5.12.
const FLAGS: [&str; 10] = [
    "-target",
    "bpf",
    "-mcpu=v3",
    "-O2",
    "-g",
    "-fno-addrsig",
    "-fdebug-compilation-dir=.",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// Failure to build an object, or a mismatch.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The compiler is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The compiler failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A file could not be read or written.
    #[error("{path}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// The checked-in object differs from a rebuild of its source.
    #[error("{0}: differs from a rebuild by {CLANG}; run `cargo xtask bpf`")]
    Differs(PathBuf),
}

impl BpfError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.into(), source }
    }
}

/// Directory of the crate, with sources and objects.
pub fn crate_directory() -> PathBuf {
    workspace::root().join("crates/sched-trace")
}

/// Path of a checked-in object.
pub fn object_path(name: &str) -> PathBuf {
    crate_directory().join(format!("bpf/{name}.bpf.o"))
}

/// Builds one object from the sources in `directory/bpf` and returns its bytes.
///
/// # Errors
/// If the compiler is missing, with what to install, or if it failed.
pub fn build(directory: &Path, name: &str) -> Result<Vec<u8>, BpfError> {
    prerequisites::check(|tool| [CLANG, STRIP].contains(&tool.probe[0]))?;
    let output =
        tempfile::NamedTempFile::with_suffix(".o").map_err(BpfError::io(Path::new("/tmp")))?;
    let mut compile = Command::new(CLANG);
    compile
        .current_dir(directory)
        .args(FLAGS)
        .arg("-c")
        .arg(format!("bpf/{name}.bpf.c"))
        .arg("-o")
        .arg(output.path());
    process::output_of(&mut compile)?;
    // BTF is not a debug section and remains.
    process::output_of(Command::new(STRIP).arg("--strip-debug").arg(output.path()))?;
    fs::read(output.path()).map_err(BpfError::io(output.path()))
}

/// Rebuilds all objects.
///
/// # Errors
/// As [`build`], or an object cannot be written.
pub fn build_all() -> Result<(), BpfError> {
    OBJECTS.iter().try_for_each(|name| {
        let path = object_path(name);
        fs::write(&path, build(&crate_directory(), name)?).map_err(BpfError::io(&path))
    })
}

/// Compares the checked-in objects with a rebuild, byte for byte: instructions, maps, relocations
/// and BTF.
///
/// # Errors
/// As [`build`], and [`BpfError::Differs`].
pub fn check_all() -> Result<(), BpfError> {
    OBJECTS.iter().try_for_each(|name| {
        let path = object_path(name);
        let checked_in = fs::read(&path).map_err(BpfError::io(&path))?;
        if checked_in == build(&crate_directory(), name)? {
            Ok(())
        } else {
            Err(BpfError::Differs(path))
        }
    })
}
