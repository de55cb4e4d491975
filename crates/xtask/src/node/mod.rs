//! The QEMU node: a Debian kernel with cgroup v2 and PSI, in which one program runs as root.
//!
//! Manages the guest from the kernel package to the exit code. Does not touch the host's cgroups
//! and apt configuration; all files are in `target/node` and a temporary directory. Always emulates
//! in software, so it runs wherever QEMU does. Tests run in virtual time ([`Clock::Virtual`]): the
//! load of the host cannot fail them, and no test may measure speed in a guest.

mod apt;
mod emulator;
mod guest;
mod guest_options;
mod guest_tests;
mod init_script;
mod initramfs;
mod kernel;
mod machine;
mod outputs;
mod shared_libraries;
pub mod times;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use emulator::Emulator;
pub use guest::Guest;
pub use guest_options::{Forward, GuestFile, OutputFile};
pub use guest_tests::TestsOutcome;
pub use kernel::{Kernel, KernelSeries, obtain_kernel};

use crate::make_once::FileError;
use crate::prerequisites::{self, Missing, Task};
use crate::process::CommandError;
pub use crate::qemu::{Clock, CpuTopology};

/// Configuration of a guest and its timeout.
#[derive(Debug, Clone)]
pub struct Node {
    /// Series of the kernel.
    pub kernel: KernelSeries,
    /// Clock of the guest.
    pub clock: Clock,
    /// Virtual CPUs; each socket is a NUMA node.
    pub cpus: CpuTopology,
    /// Memory, MiB, divided evenly among the NUMA nodes.
    pub memory_mib: u32,
    /// Time from the program's start until the guest is killed, by the host's clock.
    pub timeout: Duration,
    /// Environment of the program, in addition to `PATH`, `HOME` and `RUST_BACKTRACE=1`.
    pub env: Vec<(String, String)>,
    /// Files to copy into the guest.
    pub files: Vec<GuestFile>,
    /// Files to copy back after the program has ended.
    pub outputs: Vec<OutputFile>,
    /// Whether to forward the program's output while it runs.
    pub echo: bool,
    /// Port of the guest that is reachable from here; without one the guest has no network card.
    pub forward: Option<Forward>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            kernel: KernelSeries::V6_1,
            clock: Clock::Virtual,
            cpus: CpuTopology { sockets: 2, cores: 2, threads: 2 },
            memory_mib: 1024,
            timeout: Duration::from_secs(600),
            env: Vec::new(),
            files: Vec::new(),
            outputs: Vec::new(),
            echo: false,
            forward: None,
        }
    }
}

/// Outcome of the program or the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The program exited with this code; 128 + N after signal N.
    Exited(i32),
    /// The guest was killed after its timeout.
    TimedOut,
    /// The guest ended without a result of the program: a kernel panic, or it powered itself off.
    Lost,
}

/// Result of a guest.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Outcome of the program or the guest.
    pub ending: Ending,
    /// Standard output of the program, as far as received.
    pub stdout: Vec<u8>,
    /// Standard error of the program, as far as received.
    pub stderr: Vec<u8>,
    /// Output of the kernel and the init script.
    pub console: String,
    /// Time from power-on to power-off, by the host's clock.
    pub elapsed: Duration,
}

impl Outcome {
    /// Describes the ending, with the console where it is needed to find the cause.
    pub fn describe(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        match self.ending {
            Ending::Exited(code) => format!("the program ended with {code} after {seconds:.1} s"),
            Ending::TimedOut => {
                format!("the guest was killed after {seconds:.1} s; its console:\n{}", self.console)
            }
            Ending::Lost => {
                format!("the guest was lost after {seconds:.1} s; its console:\n{}", self.console)
            }
        }
    }
}

/// Failure to run a guest.
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
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// The program, or a file for the guest, does not exist.
    #[error("{0}: no such file on this machine")]
    NoSuchFile(PathBuf),
    /// A requested output file does not exist in the guest.
    #[error("{0}: not in the guest when its program had ended")]
    NoSuchOutput(PathBuf),
    /// No kernel of the series is available.
    #[error("no Debian kernel {series} is available from this machine's package sources:\n  {}", attempts.join("\n  "))]
    NoKernel {
        /// Series of the kernel.
        series: KernelSeries,
        /// Attempts with their results.
        attempts: Vec<String>,
    },
    /// QEMU cannot be fetched.
    #[error("no QEMU of Debian 13 is available from this machine's package sources:\n  {}", attempts.join("\n  "))]
    NoEmulator {
        /// Attempts with their results.
        attempts: Vec<String>,
    },
    /// The guest did not come up.
    #[error("the guest did not come up; its console:\n{console}")]
    NeverUp {
        /// Console of the guest.
        console: String,
    },
    /// QEMU did not start.
    #[error("qemu-system-x86_64 ended with {status}: {stderr}")]
    Qemu {
        /// Exit status of QEMU.
        status: std::process::ExitStatus,
        /// Standard error of QEMU.
        stderr: String,
    },
}

impl From<FileError> for NodeError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

impl NodeError {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

impl Node {
    /// Boots the guest, runs `program` (a path, or a name in `PATH`) with `args` in it as root, and
    /// powers it off.
    ///
    /// # Errors
    /// If the guest could not be prepared or started. A failure of the program is part of the
    /// [`Outcome`].
    pub fn run(&self, program: &Path, args: &[impl AsRef<OsStr>]) -> Result<Outcome, NodeError> {
        self.start(program, args)?.wait()
    }

    /// Boots the guest and returns when it is up and about to start the program.
    ///
    /// # Errors
    /// If the guest could not be prepared or started.
    pub fn start(&self, program: &Path, args: &[impl AsRef<OsStr>]) -> Result<Guest, NodeError> {
        prerequisites::check(|tool| tool.task == Task::Node)?;
        let kernel = obtain_kernel(self.kernel)?;
        let work = tempfile::Builder::new()
            .prefix("cpuwarden-node-")
            .tempdir()
            .map_err(NodeError::io("/tmp"))?;
        let program = initramfs::GuestProgram::locate(program)?;
        let command = init_script::command_script(&program.guest_path, args, &self.env);
        let files = [&self.files[..], &self.network_modules(&kernel)].concat();
        let initramfs = initramfs::build(work.path(), &program, &command, &files, &self.outputs)?;
        Guest::boot(self, &kernel.image, &initramfs, work)
    }

    /// Places the modules where init finds them, in load order by name; none without a network.
    fn network_modules(&self, kernel: &Kernel) -> Vec<GuestFile> {
        let modules = kernel.network_modules.iter().enumerate().filter(|_| self.forward.is_some());
        let file = |(at, path): (usize, &PathBuf)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            GuestFile::at(path, format!("/node/modules/{at}-{name}"))
        };
        modules.map(file).collect()
    }
}
