//! Process exit: one exit code per kind of failure, and one line with the reason.

use std::fmt;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue};

use crate::cli::Cli;
use crate::config::OptionSources;

/// Reason of an early exit.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    text: String,
}

/// Kinds of failure, with the codes of sysexits.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// 64: a wrong flag, environment variable or configuration file.
    Config = 64,
    /// 69: something required is unavailable: a port in use, a running agent that does not answer.
    Unavailable = 69,
    /// 70: an internal failure of the agent.
    Internal = 70,
    /// 72: the node lacks a requirement: no cgroup hierarchy.
    Node = 72,
}

impl Failure {
    /// A wrong command line or environment variable: clap's message without its usage text, with a
    /// pointer to the help.
    pub(crate) fn usage(error: &clap::Error, sources: &OptionSources) -> Self {
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
        Self::config(format!(
            "{message}; see cpuwarden {}--help",
            subcommand().map_or(String::new(), |name| name + " ")
        ))
    }

    /// The same failure with another text.
    pub(crate) fn map(self, text: impl FnOnce(String) -> String) -> Self {
        Self { kind: self.kind, text: text(self.text) }
    }

    pub(crate) fn config(text: String) -> Self {
        Self { kind: Kind::Config, text }
    }

    pub(crate) fn unavailable(text: String) -> Self {
        Self { kind: Kind::Unavailable, text }
    }

    pub(crate) fn node(text: String) -> Self {
        Self { kind: Kind::Node, text }
    }

    pub(crate) fn internal(error: &anyhow::Error) -> Self {
        Self { kind: Kind::Internal, text: format!("{error:#}") }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

/// The subcommand of this command line.
fn subcommand() -> Option<String> {
    let first = std::env::args().skip(1).find(|arg| !arg.starts_with('-'))?;
    Cli::command().find_subcommand(&first).map(|_| first)
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::internal(&error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A library's message may have several lines.
        let mut lines = self.text.lines().map(str::trim).filter(|line| !line.is_empty());
        out.write_str(lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(out, " {line}"))
    }
}
