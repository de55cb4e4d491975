//! Reasons why waits cannot be traced on this node. The agent continues with the bounds from
//! schedstat.

use std::io;

use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::sys::SyscallError;
use aya::{BtfError, EbpfError};

use crate::types::THROTTLE_FIELDS;

/// Failure to load or attach the program.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel has no BTF type information.
    #[error("the kernel has no BTF (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)")]
    NoBtf(#[source] BtfError),
    /// The kernel's BTF lacks the fields that show whether a run queue is throttled. Without them,
    /// neighbors would be blamed for throttling.
    #[error("the kernel's BTF has no field that shows when a cgroup is throttled: expected {}",
        THROTTLE_FIELDS.map(|fields| fields.join(" and ")).join(", or "))]
    NoThrottleFields,
    /// `CAP_BPF` or `CAP_PERFMON` is missing, or a policy forbids BPF.
    #[error("BPF is not permitted: it needs CAP_BPF and CAP_PERFMON")]
    NotPermitted(#[source] io::Error),
    /// The kernel is locked down (confidentiality), which forbids BPF programs to read it.
    #[error("the kernel is locked down")]
    LockedDown(#[source] io::Error),
    /// The verifier rejected the program.
    #[error("the kernel's verifier rejected the program: {log}")]
    VerifierRejected {
        /// Last lines of the verifier's log.
        log: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// This kernel lacks a type, a field or a helper that the program needs.
    #[error("the program is not compatible with this kernel")]
    UnsupportedKernel(#[source] EbpfError),
    /// A map could not be created, or mapped into memory.
    #[error("cannot create the program's maps: {0}")]
    Maps(String, #[source] io::Error),
    /// The tracepoint rejected the program.
    #[error("cannot attach the program to sched_switch")]
    Attach(#[source] ProgramError),
    /// The hierarchy is a copy. The program identifies cgroups by their inodes, which a copy does
    /// not have.
    #[error("no_cgroups")]
    NoKernelCgroups,
    /// `/sys` does not list the machine's CPUs.
    #[error("cannot read the CPUs of this machine")]
    Cpus(#[source] cgroupfs::Error),
}

impl StartError {
    /// Short name for `cpuwarden_feature_enabled{feature="sched_trace",reason}`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoBtf(_) => "no_btf",
            Self::NoThrottleFields => "no_throttle_fields",
            Self::NotPermitted(_) => "not_permitted",
            Self::LockedDown(_) => "locked_down",
            Self::VerifierRejected { .. } => "verifier_rejected",
            Self::UnsupportedKernel(_) => "unsupported_kernel",
            Self::Maps(..) => "no_tables",
            Self::Attach(_) => "attach_failed",
            Self::NoKernelCgroups => "no_cgroups",
            Self::Cpus(_) => "unknown_cpus",
        }
    }

    /// Advice for the operator.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NoBtf(_) => "use a kernel with CONFIG_DEBUG_INFO_BTF, and mount the host's /sys",
            Self::NotPermitted(_) => {
                "add the capabilities BPF and PERFMON, and run as root; a seccomp profile must allow bpf and perf_event_open"
            }
            Self::LockedDown(_) => "boot without lockdown=confidentiality",
            Self::NoThrottleFields
            | Self::VerifierRejected { .. }
            | Self::UnsupportedKernel(_)
            | Self::Attach(_) => "use another kernel (6.1, 6.12 and 6.18 are tested)",
            Self::Maps(..) => "give the agent more memory",
            Self::NoKernelCgroups => "--cgroup-root is not this kernel's cgroup hierarchy",
            Self::Cpus(_) => "mount the host's /sys",
        }
    }

    /// The reason and the remedy, for the state of a feature.
    pub(crate) fn summary(&self) -> String {
        format!("{}: {}", self.reason(), self.remedy())
    }

    /// Converts an error from creating the maps or relocating the program.
    pub(crate) fn on_load(error: EbpfError, is_locked_down: bool) -> Self {
        match error {
            EbpfError::MapError(MapError::CreateError { name, io_error }) => {
                rejected(io_error, is_locked_down, |error| Self::Maps(name, error))
            }
            EbpfError::MapError(MapError::SyscallError(SyscallError { call, io_error })) => {
                rejected(io_error, is_locked_down, |error| Self::Maps(call.to_owned(), error))
            }
            // The first BPF call of all: a missing permission shows up here.
            EbpfError::BtfError(BtfError::LoadError { io_error, .. })
                if is_permission(&io_error) =>
            {
                rejected(io_error, is_locked_down, Self::NotPermitted)
            }
            EbpfError::ProgramError(error) => Self::on_verify(error, is_locked_down),
            error => Self::UnsupportedKernel(error),
        }
    }

    /// Converts an error from loading the program.
    pub(crate) fn on_verify(error: ProgramError, is_locked_down: bool) -> Self {
        match error {
            ProgramError::LoadError { io_error, verifier_log } => {
                let log = last_lines(&verifier_log.to_string());
                // Without the capability the kernel rejects the program before the verifier runs,
                // or at its first read of the kernel.
                if log.is_empty() || is_permission(&io_error) && is_locked_down {
                    return rejected(io_error, is_locked_down, |source| Self::VerifierRejected {
                        log,
                        source,
                    });
                }
                Self::VerifierRejected { log, source: io_error }
            }
            error => Self::UnsupportedKernel(error.into()),
        }
    }

    /// Converts an error from attaching the program.
    pub(crate) fn on_attach(error: ProgramError, is_locked_down: bool) -> Self {
        match error {
            ProgramError::SyscallError(SyscallError { io_error, .. })
                if is_permission(&io_error) =>
            {
                rejected(io_error, is_locked_down, Self::NotPermitted)
            }
            error => Self::Attach(error),
        }
    }
}

fn is_permission(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Distinguishes missing permissions from any other error.
fn rejected(
    error: io::Error,
    is_locked_down: bool,
    otherwise: impl FnOnce(io::Error) -> StartError,
) -> StartError {
    match is_permission(&error) {
        true if is_locked_down => StartError::LockedDown(error),
        true => StartError::NotPermitted(error),
        false => otherwise(error),
    }
}

/// The end of the log: the verifier states its objection there, after thousands of lines.
fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io_error(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    const EPERM: i32 = 1;
    const E2BIG: i32 = 7;

    fn map_error(code: i32) -> EbpfError {
        EbpfError::MapError(MapError::CreateError {
            name: "pairs".into(),
            io_error: io_error(code),
        })
    }

    #[test]
    fn permission_and_verifier_errors_are_distinguished() {
        assert_eq!(StartError::on_load(map_error(EPERM), false).reason(), "not_permitted");
        assert_eq!(StartError::on_load(map_error(EPERM), true).reason(), "locked_down");
        assert_eq!(StartError::on_load(map_error(E2BIG), true).reason(), "no_tables");
        assert_eq!(StartError::on_load(EbpfError::NoBTF, false).reason(), "unsupported_kernel");
    }

    #[test]
    fn the_verifier_is_quoted_by_its_last_lines() {
        assert_eq!(
            last_lines("1\n2\n\n3\n4\n invalid access\nprocessed 7 insns\n"),
            "3; 4; invalid access; processed 7 insns"
        );
        assert_eq!(last_lines(""), "");
    }
}
