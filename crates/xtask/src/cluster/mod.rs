//! `cargo xtask cluster`: a Kubernetes cluster of one node, with systemd, in QEMU.
//!
//! Control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of
//! this machine. Node: a Debian with systemd as process 1, cgroup v2 or v1, containerd and a
//! kubelet. All of them live in a network and a PID namespace of their own: nothing listens in this
//! machine's network, and nothing outlives the command. All programs are built from the Go module
//! proxy and cached outside of `target`; no image is pulled.

mod audit;
mod binaries;
mod cache;
pub mod certificates;
mod control_plane;
mod descheduler;
mod disk;
mod guest;
mod images;
mod namespace;
mod network;
pub mod pods;
mod recording;
mod release;
mod session;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use audit::AuditOptions;
pub use descheduler::By;
pub use network::NODE_NAME;
pub use release::Release;
pub use session::{Cluster, ONLY, wait_until};

use crate::fleet::FleetError;
use crate::generated;
use crate::image::ImageError;
use crate::make_once::FileError;
use crate::node::NodeError;
use crate::prerequisites::{self, Missing, Task};
use crate::process::CommandError;
use crate::qemu::CpuTopology;
use crate::test_run::{self, TargetsError};
use crate::tools::{self, ToolError};

/// An error of building, starting or using a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Missing tools.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A failed program.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A tool that cannot be installed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A failed build of the agent's image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A failed build of the install tests.
    #[error(transparent)]
    Tests(#[from] TargetsError),
    /// A missing kernel.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A node of plain files.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A file or directory.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// An event that did not happen in time, or a result that is not as expected.
    #[error("{0}")]
    Unexpected(String),
}

impl From<FileError> for ClusterError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

impl ClusterError {
    /// The error of a file or directory.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Parts of a cluster that can be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Kubernetes release.
    pub release: Release,
    /// Static program of the agent; without one, this checkout's is built.
    pub agent: Option<PathBuf>,
    /// CPUs of the node.
    pub cpus: CpuTopology,
    /// Whether the node has cgroup v1 instead of v2.
    pub cgroup_v1: bool,
}

/// Builds everything that a cluster needs and that is not in the cache yet. The first build takes
/// long.
///
/// # Errors
/// A missing tool, with its package; a failed download or build.
pub fn build(options: &Options) -> Result<(), ClusterError> {
    prepare(options).map(drop)
}

/// Whether a cluster of this release was built on this machine before.
#[must_use]
pub fn was_built(release: Release) -> bool {
    binaries::are_cached(release)
}

/// As [`build`]. Returns the program with the install tests, which also makes the certificates.
fn prepare(options: &Options) -> Result<PathBuf, ClusterError> {
    check_prerequisites()?;
    guest::download_machine()?;
    tools::helm()?;
    disk::node_disk(&options.release)?;
    images::agent(options)?;
    Ok(test_run::build_one("xtask", "install")?)
}

/// Starts a cluster, runs a command beside it (`kubectl`, `helm` and `in-node` are in its `PATH`),
/// and ends the cluster with the command. Without a command, an interactive shell.
///
/// # Errors
/// As for [`build`]; a cluster that does not become ready.
pub fn run(options: &Options, command: &[OsString]) -> Result<ExitCode, ClusterError> {
    let tests = prepare(options)?;
    namespace::enter(|| Cluster::start(options, &tests)?.run(command))
}

/// Starts a cluster, unless this process runs beside one, and runs the install tests in it. Prints
/// one line per test, with its figures.
///
/// # Errors
/// As for [`run`]; failed tests.
pub fn test(options: &Options, only: &[String]) -> Result<ExitCode, ClusterError> {
    let tests = prepare(options)?;
    namespace::enter(|| Cluster::find_or_start(options, &tests)?.test(&tests, only))
}

/// Starts a cluster, unless this process runs beside one, and records its node into a `.tar.gz` for
/// the tests of recordings.
///
/// # Errors
/// As for [`run`]; a recording that is not complete.
pub fn record(options: &Options, archive: &Path) -> Result<ExitCode, ClusterError> {
    let tests = prepare(options)?;
    namespace::enter(|| recording::record(&Cluster::find_or_start(options, &tests)?, archive))
}

/// The agent for this machine, built unless the options name one.
fn host_agent(options: &Options) -> Result<PathBuf, ClusterError> {
    match &options.agent {
        Some(agent) => Ok(agent.clone()),
        None => Ok(generated::build_agent()?),
    }
}

/// Moves pods of three nodes, which are subtrees of this machine's cgroups, with the real
/// descheduler: by PSI and by the agent's contention. Prints what it did.
///
/// # Errors
/// As for [`build`]; no cgroup v1 with the unified hierarchy beside it, or less than two CPUs; a
/// result that is not as expected.
pub fn deschedule(options: &Options, only: Option<By>) -> Result<ExitCode, ClusterError> {
    check_prerequisites()?;
    let agent = host_agent(options)?;
    binaries::descheduler()?;
    binaries::kubernetes(&options.release)?;
    let tests = test_run::build_one("xtask", "install")?;
    namespace::enter(|| descheduler::run(options.release, &agent, &tests, only))
}

/// Runs agents of a fleet next to a real control plane, as the chart installs them. Prints their
/// requests.
///
/// # Errors
/// As for [`build`]; a request that the chart's values do not explain.
pub fn audit(options: &Options, audited: &AuditOptions) -> Result<ExitCode, ClusterError> {
    check_prerequisites()?;
    let agent = host_agent(options)?;
    tools::helm()?;
    binaries::kubernetes(&options.release)?;
    let tests = test_run::build_one("xtask", "install")?;
    namespace::enter(|| audit::run(options.release, &agent, &tests, audited))
}

fn check_prerequisites() -> Result<(), ClusterError> {
    if !test_run::is_root() {
        let text = "must be run as root: it makes namespaces, a network device and a file system with devices";
        return Err(ClusterError::Unexpected(text.into()));
    }
    let tasks = [Task::Cluster, Task::Node, Task::Image];
    Ok(prerequisites::check(|tool| tasks.contains(&tool.task) || tool.probe[0] == "cc")?)
}

/// Fails with a text unless a condition holds.
///
/// # Errors
/// The text.
pub fn ensure(condition: bool, text: impl FnOnce() -> String) -> Result<(), ClusterError> {
    if condition { Ok(()) } else { Err(ClusterError::Unexpected(text())) }
}

/// Writes a file, with its directories.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), ClusterError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(ClusterError::io(parent))?;
    }
    std::fs::write(path, bytes).map_err(ClusterError::io(path))
}
