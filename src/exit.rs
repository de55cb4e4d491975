//! Exit of the process after a wrong command line.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue};

use crate::cli::Cli;
use crate::config::OptionSources;

pub(crate) use console::Failure;

/// A wrong command line or environment variable: clap's message without its usage text, with a
/// pointer to the help.
pub(crate) fn usage(error: &clap::Error, sources: &OptionSources) -> Failure {
    let text = error.to_string();
    let message =
        text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ").trim_end();
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.as_str(),
        _ => "",
    };
    // clap names the flag even if the value came from the environment.
    let flag = option.split([' ', '[', '=']).next().unwrap_or_default();
    let message = match sources.variable_of(flag) {
        Some(variable) => message.replace(&format!("'{option}'"), &variable),
        None => message.to_owned(),
    };
    Failure::config(format!(
        "{message}; see cpuwarden {}--help",
        subcommand().map_or(String::new(), |name| name + " ")
    ))
}

/// The subcommand of this command line.
fn subcommand() -> Option<String> {
    let first = std::env::args().skip(1).find(|arg| !arg.starts_with('-'))?;
    Cli::command().find_subcommand(&first).map(|_| first)
}
