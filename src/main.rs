//! cpuwarden: the binary. Start-up, shutdown, and nothing else.

mod advise;
mod agent;
mod cli;
mod config;
mod demo;
mod doctor;
mod exit;
mod logging;
mod output;
mod pinning;
mod reference;
mod run;
mod serve;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // Help and version are asked for.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return end(&Failure::usage(&error)),
    };
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(failure) => end(&failure),
    }
}

fn end(failure: &Failure) -> ExitCode {
    eprintln!("cpuwarden: {failure}");
    failure.code()
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => run::run(&args.resolve()?)?,
        Command::CheckConfig(args) => run::check_config(&args.resolve()?)?,
        Command::Demo(args) => demo::demo(&args)?,
        Command::Advise(args) => advise::advise(&args)?,
        Command::Doctor(args) => return doctor::doctor(*args),
        Command::Topology(args) => pinning::topology(*args)?,
        Command::Pins(args) => pinning::pins(*args)?,
        Command::Drain(args) => pinning::drain(*args)?,
        Command::Reference { subject } => output::show(&reference::reference(subject)),
        Command::DemoWorkload { workload } => demo::run_workload(workload)?,
    }
    Ok(ExitCode::SUCCESS)
}
