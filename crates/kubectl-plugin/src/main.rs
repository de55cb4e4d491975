//! The kubectl plugin alone: without the agent, for machines that are no nodes (macOS, Windows).

use std::process::ExitCode;

use clap::Parser as _;
use console::{Failure, stderr};
use kubectl_plugin::{NAME, Plugin};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(stderr::report_panic));
    stderr::name_program(NAME);
    let code = run().unwrap_or_else(|failure| {
        stderr::say(&failure);
        failure.code()
    });
    stderr::flush();
    code
}

fn run() -> Result<ExitCode, Failure> {
    match Plugin::try_parse() {
        Ok(plugin) => kubectl_plugin::run(plugin),
        Err(error) if !error.use_stderr() => {
            // Help and version count as success.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let text = error.to_string();
            let message = text.split("\n\n").next().unwrap_or(&text);
            let message = message.trim_start_matches("error: ").trim_end();
            Err(Failure::config(format!("{message}; see {NAME} --help")))
        }
    }
}
