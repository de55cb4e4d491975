//! The QEMU node: a Debian kernel with cgroup v2 and PSI, in which one program runs as root.
//!
//! Owns the guest from kernel package to exit code. The host's own cgroups and apt configuration are not touched;
//! everything lives in `target/node` and a temporary directory. Software emulation throughout: it runs wherever QEMU
//! does, at the price of slow CPUs, so no test may read speed from a guest.

mod apt;
mod guest;
mod guest_options;
mod init_script;
mod initramfs;
mod kernel;
mod machine;
mod outputs;
mod shared_libraries;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use guest::Guest;
pub use guest_options::{Forward, GuestFile, OutputFile};
pub use kernel::{Kernel, KernelSeries, obtain_kernel};
pub use machine::CpuTopology;

use crate::prerequisites::{self, Missing, Task};
use crate::process::CommandError;

/// What to boot and how long to wait for it.
#[derive(Debug, Clone)]
pub struct Node {
    /// The kernel.
    pub kernel: KernelSeries,
    /// The virtual CPUs; each socket is a NUMA node.
    pub cpus: CpuTopology,
    /// Memory, MiB, shared out evenly to the NUMA nodes.
    pub memory_mib: u32,
    /// From the program's start until the guest is killed.
    pub timeout: Duration,
    /// The program's environment, beside `PATH`, `HOME` and `RUST_BACKTRACE=1`.
    pub env: Vec<(String, String)>,
    /// Files for the guest.
    pub files: Vec<GuestFile>,
    /// Files to bring back once the program has ended.
    pub outputs: Vec<OutputFile>,
    /// Pass the program's output on while it runs.
    pub echo: bool,
    /// A port of the guest to be reached from here; without one the guest has no network card.
    pub forward: Option<Forward>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            kernel: KernelSeries::V6_1,
            cpus: CpuTopology { sockets: 2, cores: 2, threads: 2 },
            memory_mib: 1024,
            timeout: Duration::from_secs(60),
            env: Vec::new(),
            files: Vec::new(),
            outputs: Vec::new(),
            echo: false,
            forward: None,
        }
    }
}

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The program ended with this code; 128 + N after signal N.
    Exited(i32),
    /// The guest was killed after its time.
    TimedOut,
    /// The guest ended without saying how the program did: a kernel panic, or it powered itself off.
    Lost,
}

/// What a guest left behind.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The program's standard output, as far as it came.
    pub stdout: Vec<u8>,
    /// The program's standard error, as far as it came.
    pub stderr: Vec<u8>,
    /// What the kernel and the init script said.
    pub console: String,
    /// From the first power-on to power-off.
    pub elapsed: Duration,
}

impl Outcome {
    /// The ending in words; the console with it where that is what tells why.
    pub fn describe(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        match self.ending {
            Ending::Exited(code) => format!("the program ended with {code} after {seconds:.1} s"),
            Ending::TimedOut => format!("the guest was killed after {seconds:.1} s; its console:\n{}", self.console),
            Ending::Lost => format!("the guest was lost after {seconds:.1} s; its console:\n{}", self.console),
        }
    }
}

/// Why a guest could not be run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Tools are missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A helper program failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A file could not be read or written.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program, or a file for the guest, does not exist.
    #[error("{0}: no such file on this machine")]
    NoSuchFile(PathBuf),
    /// A file that was to be brought back is not in the guest.
    #[error("{0}: not in the guest when its program had ended")]
    NoSuchOutput(PathBuf),
    /// No kernel of the series could be had.
    #[error("no Debian kernel {series} can be had from this machine's package sources:\n  {}", attempts.join("\n  "))]
    NoKernel {
        /// The series.
        series: KernelSeries,
        /// What was tried, and what came of it.
        attempts: Vec<String>,
    },
    /// The kernel did not come up, several times.
    #[error("no guest came up in {boots} boots; the last one's console:\n{console}")]
    NeverUp {
        /// How often it was tried.
        boots: u32,
        /// What the last one said.
        console: String,
    },
    /// QEMU did not start.
    #[error("qemu-system-x86_64 ended with {status}: {stderr}")]
    Qemu {
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        stderr: String,
    },
}

impl NodeError {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// How often a lost guest is tried again.
const MORE_RUNS: u32 = 2;

impl Node {
    /// Boots the guest, runs `program` (a path, or a name in `PATH`) with `args` in it as root, and powers it off.
    ///
    /// # Errors
    /// When the guest could not be prepared or started. How the program did is the [`Outcome`]'s to say.
    pub fn run(&self, program: &Path, args: &[impl AsRef<OsStr>]) -> Result<Outcome, NodeError> {
        self.start(program, args)?.wait()
    }

    /// As [`run`](Self::run), and once more where the guest was lost, at most twice.
    ///
    /// A guest kernel that dies is the emulator's doing (see `cx16` in its command line): the program has neither failed
    /// nor succeeded.
    ///
    /// # Errors
    /// As of [`run`](Self::run).
    pub fn run_again_if_lost(&self, program: &Path, args: &[impl AsRef<OsStr>]) -> Result<Outcome, NodeError> {
        let mut outcome = self.run(program, args)?;
        for _ in 0..MORE_RUNS {
            if outcome.ending == Ending::Lost {
                println!("--- the guest was lost after {:.0} s: once more", outcome.elapsed.as_secs_f64());
                outcome = self.run(program, args)?;
            }
        }
        Ok(outcome)
    }

    /// Boots the guest and returns when it is up, on its way to the program.
    ///
    /// # Errors
    /// When the guest could not be prepared or started.
    pub fn start(&self, program: &Path, args: &[impl AsRef<OsStr>]) -> Result<Guest, NodeError> {
        prerequisites::check(|tool| tool.task == Task::Node)?;
        let kernel = obtain_kernel(self.kernel)?;
        let work = tempfile::Builder::new().prefix("cpuwarden-node-").tempdir().map_err(NodeError::io("/tmp"))?;
        let program = initramfs::GuestProgram::locate(program)?;
        let command = init_script::command_script(&program.guest_path, args, &self.env);
        let files = [&self.files[..], &self.network_modules(&kernel)].concat();
        let initramfs = initramfs::build(work.path(), &program, &command, &files, &self.outputs)?;
        Guest::boot(self, &kernel.image, &initramfs, work)
    }

    /// Where init finds them, by the order of their names; none without a network.
    fn network_modules(&self, kernel: &Kernel) -> Vec<GuestFile> {
        let modules = kernel.network_modules.iter().enumerate().filter(|_| self.forward.is_some());
        let file = |(at, path): (usize, &PathBuf)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            GuestFile::at(path, format!("/node/modules/{at}-{name}"))
        };
        modules.map(file).collect()
    }
}
