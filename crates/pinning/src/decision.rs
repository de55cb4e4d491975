//! Decisions about single pods, as reported to their owners.

use placement::Reason;

use crate::repairs::PauseCause;

/// A decision and the pod that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// UID in the name of the pod's cgroup. For a static pod, the hash of its manifest.
    pub uid: String,
    /// Namespace; empty if the pod's name is unknown.
    pub namespace: String,
    /// Pod name, or its UID if the name is unknown.
    pub pod: String,
    /// The decision.
    pub outcome: PodOutcome,
}

/// Outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodOutcome {
    /// The pod was granted exclusive CPUs, or other ones than before.
    Pinned {
        /// `LSE` or `LSR`.
        cpu_qos: String,
        /// `FullPCPUs` or `SpreadByPCPUs`.
        bind_policy: String,
        /// Its CPUs in list format (`0-1,4`).
        cpus: String,
    },
    /// The pod still runs, and is back in the shared pool.
    Released,
    /// The request for exclusive CPUs is rejected.
    Rejected(Reason),
    /// The pod's cpusets are left alone for a while, except for CPUs that are added to them.
    SteppedBack {
        /// Reason of the pause.
        cause: PauseCause,
        /// Minutes until the next attempt.
        minutes: u64,
    },
    /// This number of cpusets, rewritten by another writer, was restored to the plan.
    Repaired(usize),
}
