//! cpuwarden: the binary. Only start-up and shutdown.

mod agent;
mod best_effort;
mod check;
mod claims;
mod cli;
mod condition;
mod config;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod exit;
mod interference;
mod pinning;
mod record;
mod recorder;
mod reference;
mod run;
mod sampling;
#[cfg(feature = "shell")]
mod shell;
mod status;
#[cfg(feature = "top")]
mod top;
mod trace;
mod ui;

use std::process::ExitCode;

use clap::Parser;
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
        return parsed(kubectl_plugin::Plugin::try_parse(), kubectl_plugin::run);
    }
    parsed(Cli::try_parse(), |cli| dispatch(cli.command))
}

/// Runs a command line, or prints the help or version that it asks for.
fn parsed<T>(
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
        Err(error) => Err(exit::usage(&error, &OptionSources::here(None))),
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
