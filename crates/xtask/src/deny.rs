//! `cargo xtask deny`: checks licenses, sources, banned crates and known vulnerabilities of every
//! dependency, by cargo-deny with `.cargo/deny.toml`.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::process::{self, CommandError};
use crate::tools::{self, ToolError};
use crate::workspace;

/// Checks that work offline, with the lock file and the crates alone.
const LOCAL: [&str; 3] = ["bans", "licenses", "sources"];

/// Handling of an advisory database that cannot be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advisories {
    /// Skips the check; the outcome reports it.
    IfReachable,
    /// Fails the check.
    Required,
}

/// Result of the advisory check, after all other checks have passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No dependency has an advisory.
    Checked,
    /// The database could not be fetched.
    NotChecked {
        /// Last line of the fetch's output.
        reason: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checked => out.write_str("advisories: checked"),
            Self::NotChecked { reason } => {
                write!(out, "advisories: not checked (database not reachable: {reason})")
            }
        }
    }
}

/// A failed check.
#[derive(Debug, thiserror::Error)]
pub enum DenyError {
    /// cargo-deny is missing and cannot be installed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// cargo-deny reported a problem, or could not be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The database is required and could not be fetched.
    #[error("advisories: the database cannot be fetched: {0}")]
    Unreachable(String),
}

/// Installs cargo-deny if missing, and checks the workspace.
///
/// # Errors
/// A reported problem, or a required database that cannot be fetched.
pub fn run(advisories: Advisories) -> Result<Outcome, DenyError> {
    check(&tools::cargo_deny()?, advisories)
}

fn check(cargo_deny: &Path, advisories: Advisories) -> Result<Outcome, DenyError> {
    let with = |arguments: &[&str]| {
        let mut command = Command::new(cargo_deny);
        command.current_dir(workspace::root()).arg("--locked").args(arguments);
        // Cargo sets its own variables for child processes; cargo-deny must query cargo itself.
        command.env_remove("CARGO_MANIFEST_DIR");
        command
    };
    process::run(with(&["check"]).args(LOCAL.map(OsStr::new)))?;
    match (process::output_of(&mut with(&["fetch", "db"])), advisories) {
        (Ok(_), _) => {
            process::run(&mut with(&["check", "advisories"]))?;
            Ok(Outcome::Checked)
        }
        (Err(error), Advisories::IfReachable) => {
            Ok(Outcome::NotChecked { reason: last_line(&error) })
        }
        (Err(error), Advisories::Required) => Err(DenyError::Unreachable(last_line(&error))),
    }
}

fn last_line(error: &CommandError) -> String {
    let text = process::error_chain(error);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::Advisories::{IfReachable, Required};
    use super::*;

    /// A stand-in for cargo-deny that fails for these arguments.
    fn cargo_deny(fails_for: &str) -> (TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cargo-deny");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in {fails_for}) echo 'first\nno such host' >&2; exit 1;; esac\n"
        );
        // Written by a child process: a child that the thread of another test forks meanwhile would
        // hold the file open for writing, and its start would fail (ETXTBSY).
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut shell = Command::new("sh");
        assert!(shell.args(["-c", write]).arg(&path).arg(&script).status().unwrap().success());
        (directory, path)
    }

    #[test]
    fn a_reachable_database_is_checked() {
        let (_directory, program) = cargo_deny("none");
        for advisories in [IfReachable, Required] {
            assert_eq!(check(&program, advisories).unwrap().to_string(), "advisories: checked");
        }
    }

    #[test]
    fn an_unreachable_database_is_never_called_checked() {
        let (_directory, program) = cargo_deny("*fetch*");
        let outcome = check(&program, IfReachable).unwrap();
        assert_eq!(
            outcome.to_string(),
            "advisories: not checked (database not reachable: no such host)"
        );
        let error = check(&program, Required).unwrap_err().to_string();
        assert_eq!(error, "advisories: the database cannot be fetched: no such host");
    }

    #[test]
    fn advisories_fail_the_check() {
        for part in ["*bans*", "*licenses*", "*sources*", "*'check advisories'"] {
            let (_directory, program) = cargo_deny(part);
            assert!(check(&program, IfReachable).is_err(), "{part}");
        }
    }
}
