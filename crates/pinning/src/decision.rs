//! What was decided for one pod, as its owner would want to be told.

use placement::Reason;

use crate::repairs::Cause;

/// A decision and whom it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// As the pod's cgroup bears it. For a static pod that is the hash of its manifest.
    pub uid: String,
    /// Namespace; empty where the pod's name is not known.
    pub namespace: String,
    /// Pod name, or its UID.
    pub pod: String,
    /// What was decided.
    pub verdict: Verdict,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has CPUs of its own now, or others than before.
    Pinned {
        /// `LSE` or `LSR`.
        cpu_qos: String,
        /// `FullPCPUs` or `SpreadByPCPUs`.
        bind_policy: String,
        /// Its CPUs, as a list.
        cpus: String,
    },
    /// It shares again, and lives on.
    Released,
    /// Its wish is not granted.
    Refused(Reason),
    /// Its cpusets are left alone for a while; what it may have beyond them is given to it.
    SteppedBack {
        /// Why.
        cause: Cause,
        /// Minutes until it is tried again.
        minutes: u64,
    },
    /// Somebody else had rewritten so many of its cpusets; they are as planned again.
    Repaired(usize),
}
