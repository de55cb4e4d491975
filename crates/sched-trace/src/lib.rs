//! Waits for a CPU by cause, by container and by the pod that caused them.
//!
//! One eBPF program on every context switch (`bpf/sched_trace.bpf.c` documents the method), its
//! loader, the roll-up of its counts from cgroups to containers and pods, and their names from the
//! snapshot ([`NodeTrace`]). [`spawn`] runs all of it on a thread. The feature is always optional:
//! any obstacle is a [`StartError`] with a reason, and without the trace the bounds from schedstat
//! remain.
//!
//! [`GroupCounters`] is a second program, which is independent of the trace: it reads the counters of
//! all cgroups at once.

mod barrier;
mod batch;
mod cost;
mod counters;
mod cpus;
mod error;
mod governor;
pub mod heap;
mod interference;
mod layout;
mod lost;
mod mapped;
mod node;
mod program;
mod residual;
mod rollup;
mod thread;
mod trace;
mod types;
mod waits;

pub use counters::{CollectError, GroupCounters};
pub use error::StartError;
pub use node::{NodeTrace, Program, not_in_force};
pub use thread::{Wiring, load_counters, spawn};
pub use trace::{Options, SchedTrace};
pub use types::KernelTypes;
pub use waits::*;
