//! Exit of the process after a wrong command line.

use std::error::Error as _;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue};

use crate::cli::Cli;
use crate::config::OptionSources;

pub(crate) use console::Failure;

/// A wrong command line or environment variable: clap's message with a pointer to the help.
pub(crate) fn usage(error: &clap::Error, sources: &OptionSources) -> Failure {
    let message = message(error);
    let subcommand = subcommand().map_or(String::new(), |name| name + " ");
    sources.locate(Failure::config(format!("{message}; see cpuwarden {subcommand}--help")))
}

/// clap's message without its usage text. If it is about the value of an option, it begins with the
/// flag.
pub(crate) fn message(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ").trim_end();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (option, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let flag = option.split([' ', '[', '=']).next().unwrap_or_default();
    let reason = error.source().map(ToString::to_string).unwrap_or_default();
    match text.split_once(&format!(" for '{option}'")) {
        Some(_) if flag.starts_with("--") && !value.is_empty() && reason.contains(value) => {
            format!("{flag}: {reason}")
        }
        Some((before, after)) if flag.starts_with("--") => format!("{flag}: {before}{after}"),
        _ => text.to_owned(),
    }
}

/// The subcommand of this command line.
fn subcommand() -> Option<String> {
    let first = std::env::args().skip(1).find(|arg| !arg.starts_with('-'))?;
    Cli::command().find_subcommand(&first).map(|_| first)
}
