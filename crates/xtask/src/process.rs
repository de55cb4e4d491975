//! Runs other programs to completion, with errors that name the command.

use std::error::Error;
use std::io;
use std::process::{Command, ExitStatus, Stdio};

/// A program that could not be run or did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program could not be started.
    #[error("cannot start {command}")]
    Start {
        /// The command line.
        command: String,
        /// Underlying error.
        source: io::Error,
    },
    /// The program ended with a status other than 0.
    #[error("{command}: {status}{}{stderr}", if stderr.is_empty() { "" } else { ": " })]
    Failed {
        /// The command line.
        command: String,
        /// Exit status.
        status: ExitStatus,
        /// Standard error, trimmed; empty if the output was passed through.
        stderr: String,
    },
}

/// Runs a command to completion and returns its standard output.
///
/// # Errors
/// A command that cannot be started, or ends with a status other than 0.
pub fn output_of(command: &mut Command) -> Result<Vec<u8>, CommandError> {
    output_with(command, &[0])
}

/// Runs a command to completion and returns its standard output.
///
/// # Errors
/// A command that cannot be started, or ends with a status that is not among `statuses`.
pub fn output_with(command: &mut Command, statuses: &[i32]) -> Result<Vec<u8>, CommandError> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|source| start_error(command, source))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code().is_some_and(|status| statuses.contains(&status)) {
        Ok(output.stdout)
    } else {
        Err(failed(command, output.status, &stderr))
    }
}

/// Runs a command to completion, sharing this process's output.
///
/// # Errors
/// A command that cannot be started, or ends with a status other than 0.
pub fn run(command: &mut Command) -> Result<(), CommandError> {
    let status = command.status().map_err(|source| start_error(command, source))?;
    if status.success() { Ok(()) } else { Err(failed(command, status, "")) }
}

/// The command line for display, without quoting.
pub fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Formats an error with its causes in one line.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

pub(crate) fn start_error(command: &Command, source: io::Error) -> CommandError {
    CommandError::Start { command: command_line(command), source }
}

pub(crate) fn failed(command: &Command, status: ExitStatus, stderr: &str) -> CommandError {
    CommandError::Failed {
        command: command_line(command),
        status,
        stderr: stderr.trim().to_owned(),
    }
}
