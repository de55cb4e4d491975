//! cpuwarden: an agent for the nodes of a Kubernetes cluster. It measures CPU throttling and
//! contention every second.
//!
//! This crate is the binary: command line, configuration, start and shutdown. The map of the crates
//! in `crates/`:
//!
//! ```text
//! pure         kernel-text  kubepods  snapshot  api  placement  analysis
//! ground       console  watchdog
//! node         cgroupfs  cgroup-tree  runtimes  sampler  sched-trace
//! peers        tls-client  pod-sources  nri
//! figures      metrics  timeline  advisor
//! acting       state-dir  pinning  yielding  creation
//! telling      reporting  endpoint
//! development  testkit  kubelet-stub  corpus  xtask
//! views        agent-client  top  replay  node-commands  kubectl-plugin  demo
//! ```
//!
//! A crate uses only crates above it, or to its left on the same floor.
//!
//! | floor | work |
//! |---|---|
//! | pure | formats, rules, the model of a node (`snapshot`) and of the wire (`api`): values in, values out; no file, no network, no clock |
//! | ground | what every command and thread shares: exit codes, log; progress, restarts |
//! | node | reads cgroup files, `/proc`, `/sys` and the scheduler; publishes one snapshot per tick |
//! | peers | kubelet, API server, container runtime |
//! | figures | what is derived from snapshots: series, the last ten minutes and recordings, advice |
//! | acting | changes pods; off by default |
//! | telling | endpoint with metrics, page and API; log, Events, node condition |
//! | views | terminal, recordings, kubectl, commands on the node, the demo |
//!
//! | question | answer |
//! |---|---|
//! | Where does a throttled second come from? | `cpu.stat`, parsed by `kernel-text`, accumulated by the `sampler` in each tick, a field of the `snapshot`. `metrics`, `timeline` and `advisor` read it from there |
//! | Where would I add a cause of waits? | `sched-trace`: the eBPF program and its counters. The value is a field of the `snapshot` and a row of `metrics` |
//! | Who may write a cpuset? | `pinning` and `yielding`, the only writers of cgroup files, with a checkpoint in `state-dir`. The container runtime also writes the CPUs with which `creation` answers it |
//! | Who names a container? | `pod-sources` fetches the pods; `kubepods` joins them with cgroup paths |
//! | Who decides, who acts? | `placement` plans and `pinning` writes; `yielding` decides by its `rules` and writes; `analysis` finds and `advisor` publishes |
//!
//! `.github/CONTRIBUTING.md` has a row for each crate, the flow of one tick, and the threads.

mod agent;
mod best_effort;
mod check;
mod claims;
mod cli;
mod condition;
mod config;
mod counters;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod exit;
mod parts;
mod pinning;
mod record;
mod recorder;
mod reference;
mod run;
mod sampling;
#[cfg(feature = "shell")]
mod shell;
mod signals;
mod status;
#[cfg(feature = "top")]
mod top;
mod trace;
mod ui;
mod verdicts;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use console::{log as logging, output, stderr};

use cli::{Cli, Command};
use config::OptionSources;
use exit::Failure;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(stderr::report_panic));
    let code = run_command().unwrap_or_else(|failure| {
        stderr::say(&failure);
        failure.code()
    });
    stderr::flush();
    code
}

fn run_command() -> Result<ExitCode, Failure> {
    #[cfg(feature = "kubectl")]
    if kubectl_plugin::is_plugin() {
        stderr::name_program(kubectl_plugin::NAME);
        return parsed(kubectl_plugin::Plugin::try_parse(), kubectl_plugin::run);
    }
    parsed(Cli::try_parse(), |cli| dispatch(cli.command))
}

/// Runs a command line, or prints the help or version that it asks for.
fn parsed<T: CommandFactory>(
    command_line: Result<T, clap::Error>,
    run: impl FnOnce(T) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    match command_line {
        Ok(command_line) => run(command_line),
        Err(error) if !error.use_stderr() => {
            // Help and version count as success.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(exit::usage(&error, &T::command(), &OptionSources::here(None))),
    }
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => args.within(run::run)?,
        Command::CheckConfig(args) => args.within(run::check_config)?,
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::demo(&args)?,
        #[cfg(feature = "top")]
        Command::Top(args) => top::top(*args)?,
        Command::Advise(args) => agent_client::advise(&args)?,
        Command::Record(args) => record::record(*args)?,
        Command::Snapshot(args) => agent_client::snapshot(&args)?,
        #[cfg(feature = "top")]
        Command::Replay(args) => ::replay::replay(&args)?,
        Command::Doctor(args) => return doctor::doctor(*args),
        Command::Topology(args) => pinning::topology(*args)?,
        Command::Pins(args) => pinning::pins(*args)?,
        Command::Drain(args) => pinning::drain(*args)?,
        Command::CopyCertificate { from, to } => check::copy_certificate(&from, &to)?,
        #[cfg(feature = "shell")]
        Command::Completions { shell } => shell::completions(shell),
        #[cfg(feature = "shell")]
        Command::Man { subcommand } => shell::man(subcommand.as_deref())?,
        Command::Reference { page } => output::show(&reference::reference(page)),
        #[cfg(feature = "demo")]
        Command::DemoWorkload { workload } => ::demo::run_workload(workload)?,
    }
    Ok(ExitCode::SUCCESS)
}
