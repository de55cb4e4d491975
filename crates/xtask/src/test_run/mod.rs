//! `cargo xtask test`: checks prerequisites, then builds, tests and lints.
//!
//! Host tests, emulated nodes and lints run at the same time. Nodes and lints take only the CPU time
//! that the host tests leave; a node counts instructions, so that this cannot fail its tests.
//! The last lines of the output list the times of the parts, the slowest tests, the failed tests and
//! the number of tests.

mod beside;
mod libtest;
mod lints;
mod part_times;
mod parts;
mod priority;
mod queue;
mod targets;
mod times;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::process::{Command, ExitStatus};
use std::thread::{self, ScopedJoinHandle};

use crate::cluster::{self, Release};
use crate::deny::DenyError;
use crate::prerequisites::{self, Missing, Task};
use crate::process::{self, CommandError};
use crate::tools::{self, ToolError};
use crate::workspace;
use beside::{Beside, BesideError};
use libtest::Summary;
pub use lints::PLUGIN_TARGETS;
use part_times::PartTimes;
use priority::Priority;
use queue::{Plan, Queue};
pub use targets::TargetsError;
pub(crate) use targets::build_one;

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// `cargo fmt --check`.
    Fmt,
    /// Clippy, other features, the other architecture, licenses of dependencies.
    Lints,
    /// Tools that Debian does not have.
    Tools,
    /// All tests.
    Test,
}

/// Options of a run.
#[derive(Debug, Default)]
pub struct Options {
    /// Parts to run; empty for all.
    pub only: Vec<Step>,
    /// Whether to run the tests that only a release needs as well.
    pub all: bool,
    /// Number of processes that spin next to the tests.
    pub beside: u32,
    /// Arguments for `cargo test`; it then runs alone, instead of all tests.
    pub cargo_test_args: Vec<OsString>,
}

/// A failed run.
#[derive(Debug, thiserror::Error)]
pub enum TestRunError {
    /// Tools are missing, and this user cannot install them.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A step, or the installation of a tool, failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A dependency is not allowed.
    #[error(transparent)]
    Deny(#[from] DenyError),
    /// A tool that Debian does not have cannot be installed.
    #[error(transparent)]
    Tools(#[from] ToolError),
    /// The test binaries cannot be built or found.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// The load next to the tests cannot be started.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// Tests failed; standard output lists them.
    #[error("tests failed")]
    Tests,
    /// `cargo test` failed.
    #[error("cargo test: {0}")]
    CargoTest(ExitStatus),
}

/// Ensures the prerequisites, then runs the steps. A failed test or lint does not keep the others
/// from running.
///
/// # Errors
/// The first failed step, or a missing prerequisite that cannot be installed.
pub fn run(options: &Options) -> Result<(), TestRunError> {
    ensure_prerequisites()?;
    let wants = |step| options.only.is_empty() || options.only.contains(&step);
    let times = PartTimes::default();
    if wants(Step::Fmt) {
        let check = || process::run(cargo().args(["fmt", "--all", "--check"]));
        times.timed("format", check)?;
    }
    if !options.cargo_test_args.is_empty() {
        let _beside = Beside::start(options.beside)?;
        let status = cargo().arg("test").arg("--locked").args(&options.cargo_test_args).status();
        let status = status.map_err(|source| process::start_error(&cargo(), source))?;
        return if status.success() { Ok(()) } else { Err(TestRunError::CargoTest(status)) };
    }
    thread::scope(|scope| {
        let times = &times;
        // Downloads and Go builds: while the test binaries are built.
        let install = || times.timed("tools", tools::install_all);
        let tools = wants(Step::Tools).then(|| scope.spawn(install));
        if !wants(Step::Test) {
            tools.map_or(Ok(()), join)?;
            let lint = || times.timed("lints", || lints::run(Priority::Normal, options.all));
            let linted = if wants(Step::Lints) { lint() } else { Ok(()) };
            println!("\n{}", times::of_parts(times).trim_end());
            return linted;
        }
        let targets = times.timed("build", targets::build)?;
        tools.map_or(Ok(()), join)?;
        let _beside = Beside::start(options.beside)?;
        crate::node::times::clear();
        let plan = Plan::new(targets, options.all);
        let next_to = Priority::next_to_host_tests(options.beside);
        let lint = move || times.timed("lints", || lints::run(next_to, options.all));
        let lints = wants(Step::Lints).then(|| scope.spawn(lint));
        let summary = test(&plan, next_to, times);
        let lints = lints.map(join);
        let cluster = options.all.then(|| times.timed("cluster", test_cluster));
        let parts = times::of_parts(times);
        println!("\n{parts}{}{}", times::slowest(&summary), summary.describe());
        lints.transpose()?;
        cluster.transpose()?;
        if summary.is_success() { Ok(()) } else { Err(TestRunError::Tests) }
    })
}

/// Binaries of small tests at once, since many of them wait.
const SMALL_AT_ONCE: usize = 3;

/// Host tests and nodes at the same time. The tests that load nothing come first: the cgroups of the
/// others have the highest weight.
fn test(plan: &Plan, nodes: Priority, times: &PartTimes) -> Summary {
    let mut sum = Summary::default();
    let [nodes_queue, small, host] =
        [&plan.nodes, &plan.small, &plan.host].map(|runs| Queue::new(runs));
    thread::scope(|scope| {
        let nodes =
            scope.spawn(|| times.timed("nodes", || queue::run("nodes", &nodes_queue, nodes)));
        let of_small = |lane: usize| {
            let part = format!("small tests, {lane} of {SMALL_AT_ONCE}");
            times.timed(&part, || queue::run("small", &small, Priority::Normal))
        };
        let lanes: Vec<_> =
            (1..=SMALL_AT_ONCE).map(|lane| scope.spawn(move || of_small(lane))).collect();
        lanes.into_iter().for_each(|lane| sum.add(join(lane)));
        sum.add(times.timed("host", || queue::run("host", &host, Priority::Normal)));
        sum.add(join(nodes));
    });
    sum
}

/// The install tests, in a process of its own because it leaves this one's namespaces. A cluster
/// takes half an hour to build, so that they run only where one was built before.
fn test_cluster() -> Result<(), TestRunError> {
    let release = Release::NEWEST;
    if !cluster::was_built(release) {
        eprintln!("install tests not run: `cargo xtask cluster build --kubernetes newest` first");
        return Ok(());
    }
    let arguments = ["xtask", "cluster", "test", "--kubernetes", "newest"];
    Ok(process::run(cargo().args(arguments))?)
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn ensure_prerequisites() -> Result<(), TestRunError> {
    let Err(missing) = prerequisites::check(|tool| tool.task != Task::Cluster) else {
        return Ok(());
    };
    if !is_root() {
        return Err(missing.into());
    }
    eprintln!("{missing}\n==> installing them");
    prerequisites::install(&missing)?;
    Ok(prerequisites::check(|tool| tool.task != Task::Cluster)?)
}

/// Whether this process runs as root: `/proc/self` belongs to its effective user.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Cargo in the root of the workspace.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root());
    command
}
