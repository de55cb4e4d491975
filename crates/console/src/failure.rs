//! Early end of a command: one exit code per kind of failure, and one line with the reason.

use std::fmt;
use std::process::ExitCode;

/// Reason of an early exit.
#[derive(Debug)]
pub struct Failure {
    status: SysexitsCode,
    text: String,
}

/// Exit statuses of sysexits.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SysexitsCode {
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
    /// A wrong flag, environment variable or configuration file.
    #[must_use]
    pub fn config(text: String) -> Self {
        Self { status: SysexitsCode::Config, text }
    }

    /// Something required that is not available: a port, or a running agent.
    #[must_use]
    pub fn unavailable(text: String) -> Self {
        Self { status: SysexitsCode::Unavailable, text }
    }

    /// A node without a requirement, such as a cgroup hierarchy.
    #[must_use]
    pub fn node(text: String) -> Self {
        Self { status: SysexitsCode::Node, text }
    }

    /// An internal failure.
    #[must_use]
    pub fn internal(error: &anyhow::Error) -> Self {
        Self { status: SysexitsCode::Internal, text: format!("{error:#}") }
    }

    /// The same failure with another text.
    #[must_use]
    pub fn map(self, text: impl FnOnce(String) -> String) -> Self {
        Self { status: self.status, text: text(self.text) }
    }

    /// Exit code of the process.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.status as u8)
    }
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
