//! From processes to runtimes, with a cache of executables by file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::{Language, Runtime};
use cgroupfs::bounded;

use crate::executable::Executable;
use crate::parallelism::{Machine, Traits, go_follows_limit, parallelism};
use crate::process::Process;
use crate::{environment, jvm};

/// Maximum number of cached executables: more than a node runs.
const REMEMBERED: usize = 4096;

/// Time after which an executable without a result is examined again: a new process may not have
/// loaded its libraries yet.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Maximum depth of the search for the program: an init, a shell, the program.
const GENERATIONS: usize = 3;

/// Identity of a file: device, inode, and the seconds and nanoseconds of its last change. File
/// systems reuse the inode of a removed file.
pub(crate) type File = (u64, u64, i64, i64);

/// Examines processes; blocks as long as their files do.
#[derive(Debug)]
pub(crate) struct Looker {
    proc_root: PathBuf,
    executables: HashMap<File, (Executable, Instant)>,
}

impl Looker {
    pub(crate) fn new(proc_root: PathBuf) -> Self {
        Self { proc_root, executables: HashMap::new() }
    }

    /// See [`crate::Detector::detect`].
    pub(crate) fn look(&mut self, pid: u32, machine: Machine) -> Option<Runtime> {
        let (process, executable) = self.program(pid)?;
        Some(runtime(&process, executable, machine))
    }

    /// The process itself, or a descendant if it has no runtime, with its executable.
    pub(crate) fn program(&mut self, pid: u32) -> Option<(Process, Executable)> {
        let first = Process::new(&self.proc_root, pid);
        let mut executable = self.executable(&first)?;
        let mut process = first;
        for _ in 1..GENERATIONS {
            if executable.language != Language::Unknown {
                break;
            }
            let Some(child) = process.first_child().map(|pid| Process::new(&self.proc_root, pid))
            else {
                break;
            };
            let Some(of_child) = self.executable(&child) else { break };
            (process, executable) = (child, of_child);
        }
        Some((process, executable))
    }

    fn executable(&mut self, process: &Process) -> Option<Executable> {
        let key = file(process)?;
        let is_good = |(known, looked): &&(Executable, Instant)| {
            known.version.is_some() || looked.elapsed() < LOOK_AGAIN_AFTER
        };
        if let Some((known, _)) = self.executables.get(&key).filter(is_good) {
            return Some(known.clone());
        }
        let executable = Executable::of(process)?;
        if self.executables.len() >= REMEMBERED {
            self.executables.clear();
        }
        self.executables.insert(key, (executable.clone(), Instant::now()));
        Some(executable)
    }
}

/// Identity of a process's executable; `None` if the process is gone, or may not be examined.
pub(crate) fn file(process: &Process) -> Option<File> {
    let metadata = fs::metadata(process.exe()).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

/// The runtime of a process with this executable.
fn runtime(process: &Process, executable: Executable, machine: Machine) -> Runtime {
    let environ = process.environ();
    let mut runtime = Runtime {
        language: executable.language,
        version: executable.version,
        module: executable.go.module,
        automaxprocs: executable.go.automaxprocs,
        automemlimit: executable.go.automemlimit,
        claims_cpus: environment::claims_cpus(&environ),
        settings: environment::allowed(&environ),
        ..Runtime::default()
    };
    environment::keep_known(&mut runtime.settings);
    if runtime.language == Language::Jvm {
        jvm_settings(process, &mut runtime.settings);
    }
    keep_own(&mut runtime);
    let has_tokio = runtime.language == Language::Rust && process.has_thread(b"tokio-runtime-w\n");
    let traits = Traits { godebug: &executable.go.godebug, has_tokio };
    runtime.go_follows_limit = go_follows_limit(&runtime, &executable.go.godebug);
    // One worker does not show the number of workers.
    let may_have_workers = matches!(runtime.language, Language::Nodejs | Language::Python);
    if !(may_have_workers && process.first_child().is_some()) {
        (runtime.parallelism, runtime.parallelism_source) =
            parallelism(&runtime, traits, machine).unzip();
    }
    // Truncated only now: the parallelism was derived from the whole values.
    runtime.settings.values_mut().for_each(|value| bounded::truncate(value, bounded::VALUE_BYTES));
    runtime
}

fn jvm_settings(process: &Process, settings: &mut BTreeMap<String, String>) {
    let [first, second] = jvm::BEFORE.map(|name| settings.remove(name).unwrap_or_default());
    let last = settings.remove(jvm::BEHIND).unwrap_or_default();
    let arguments = process.arguments();
    let before = first.split_whitespace().chain(second.split_whitespace());
    jvm::flags(before.chain(jvm::options(&arguments)).chain(last.split_whitespace()), settings);
}

/// Removes settings of other runtimes in the environment.
fn keep_own(runtime: &mut Runtime) {
    let own: &[&str] = match runtime.language {
        Language::Go => &["GO"],
        Language::Jvm => &jvm::SETTINGS,
        Language::Nodejs => &["UV_", "NODE_"],
        Language::Dotnet => &["DOTNET_"],
        Language::Python => &["OMP_", "OPENBLAS_", "MKL_"],
        Language::Rust => &["TOKIO_", "RAYON_"],
        Language::Unknown => &[],
    };
    runtime.settings.retain(|name, _| own.iter().any(|prefix| name.starts_with(prefix)));
}
