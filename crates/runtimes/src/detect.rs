//! Files of `/proc` to a runtime, with what is in an executable kept by its device and inode.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use analysis::{Language, Runtime};

use crate::go::{BuildInfo, build_info};
use crate::parallelism::{Machine, parallelism};
use crate::{environment, jvm};

/// Executables that are remembered; more than a node runs, and a bound.
const REMEMBERED: usize = 4096;

/// What an executable is, whatever runs it.
#[derive(Debug, Clone)]
struct Executable {
    language: Language,
    go: BuildInfo,
}

/// Detects runtimes of processes.
#[derive(Debug)]
pub struct Detector {
    proc_root: PathBuf,
    executables: HashMap<(u64, u64), Executable>,
}

impl Detector {
    /// A detector of the processes of this `/proc`.
    #[must_use]
    pub fn new(proc_root: PathBuf) -> Self {
        Self { proc_root, executables: HashMap::new() }
    }

    /// The runtime of a process that may use so many CPUs under this limit, cores; `None` when it is gone or its
    /// executable may not be read.
    pub fn detect(&mut self, pid: u32, cpus: Option<u32>, limit_cores: Option<f64>) -> Option<Runtime> {
        let directory = self.proc_root.join(pid.to_string());
        let executable = self.executable(&directory.join("exe"))?;
        let mut runtime = Runtime {
            language: executable.language,
            version: executable.go.version,
            module: executable.go.module,
            automaxprocs: executable.go.automaxprocs,
            settings: fs::read(directory.join("environ")).map(|text| environment::allowed(&text)).unwrap_or_default(),
            ..Runtime::default()
        };
        let options = runtime.settings.remove("JAVA_TOOL_OPTIONS").unwrap_or_default();
        if runtime.language == Language::Jvm {
            jvm::flags(options.split_whitespace(), &mut runtime.settings);
            let line = fs::read(directory.join("cmdline")).unwrap_or_default();
            let words = line.split(|&byte| byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
            jvm::flags(words, &mut runtime.settings);
        }
        keep_own(&mut runtime);
        let chosen = parallelism(&runtime, &executable.go.godebug, Machine { cpus, limit_cores });
        (runtime.parallelism, runtime.parallelism_source) = chosen.unzip();
        Some(runtime)
    }

    fn executable(&mut self, link: &Path) -> Option<Executable> {
        let metadata = fs::metadata(link).ok()?;
        let key = (metadata.dev(), metadata.ino());
        if let Some(known) = self.executables.get(&key) {
            return Some(known.clone());
        }
        let executable = look_into(link)?;
        if self.executables.len() >= REMEMBERED {
            self.executables.clear();
        }
        self.executables.insert(key, executable.clone());
        Some(executable)
    }
}

fn look_into(link: &Path) -> Option<Executable> {
    let file = File::open(link).ok()?;
    if let Some(go) = build_info(|buffer, at| file.read_exact_at(buffer, at)) {
        return Some(Executable { language: Language::Go, go });
    }
    let target = fs::read_link(link).unwrap_or_default();
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let language = by_name(&name).unwrap_or_else(|| if is_rust(&file) { Language::Rust } else { Language::Unknown });
    Some(Executable { language, go: BuildInfo::default() })
}

/// The launchers whose names are fixed.
fn by_name(name: &str) -> Option<Language> {
    // The link of a replaced file ends so.
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    match name {
        "java" => Some(Language::Jvm),
        "node" | "nodejs" => Some(Language::Nodejs),
        "dotnet" => Some(Language::Dotnet),
        _ if name.strip_prefix("python").is_some_and(|rest| rest.chars().all(|c| c == '.' || c.is_ascii_digit())) => {
            Some(Language::Python)
        }
        _ => None,
    }
}

/// Bytes at the end of a file in which the compiler's mark is looked for: `.comment` is one of the last sections.
const TAIL_BYTES: u64 = 64 << 10;

/// `rustc version` in `.comment`, which `strip` leaves only without `--strip-all`: a stripped binary is unknown.
fn is_rust(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let length = TAIL_BYTES.min(metadata.len());
    let mut tail = vec![0; length as usize];
    let read = file.read_exact_at(&mut tail, metadata.len() - length);
    read.is_ok() && tail.windows(14).any(|bytes| bytes == b"rustc version ")
}

/// Settings of other runtimes in the environment say nothing of this one.
fn keep_own(runtime: &mut Runtime) {
    let own: &[&str] = match runtime.language {
        Language::Go => &["GO"],
        Language::Jvm => &["ActiveProcessorCount", "MaxRAMPercentage", "Xmx"],
        Language::Nodejs => &["UV_", "NODE_"],
        Language::Dotnet => &["DOTNET_"],
        Language::Python => &["OMP_", "OPENBLAS_", "MKL_"],
        Language::Rust => &["TOKIO_", "RAYON_"],
        Language::Unknown => &[],
    };
    let settings: BTreeMap<_, _> = std::mem::take(&mut runtime.settings);
    runtime.settings =
        settings.into_iter().filter(|(name, _)| own.iter().any(|prefix| name.starts_with(prefix))).collect();
}
