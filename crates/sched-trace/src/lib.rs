//! Who makes whom wait for a CPU: by cause, by container, by aggressor, in time.
//!
//! One eBPF program on every context switch (`bpf/sched_trace.bpf.c` tells the method), its loader, and the roll-up of
//! what it counts by cgroup to containers and pods. The caller says whose a cgroup is; this crate knows no Kubernetes.
//! The feature is optional everywhere: whatever keeps the program from running is a [`StartError`] with a reason, and
//! without it the bounds from schedstat remain.

mod batch;
mod cost;
mod cpus;
mod error;
mod governor;
mod heap;
mod index;
mod interference;
mod layout;
mod mapped;
mod program;
mod residual;
mod rollup;
mod trace;
mod waits;

pub use error::StartError;
pub use index::CgroupIndex;
pub use trace::{Options, SchedTrace};
pub use waits::*;
