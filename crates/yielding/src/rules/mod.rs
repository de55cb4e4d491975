//! Rules of co-location: when best-effort pods yield CPU to latency-sensitive pods, and
//! which CPU limits may burst.
//!
//! Pure functions and state machines: time is an argument, counters come from a
//! [`NodeSnapshot`](snapshot::NodeSnapshot), and the results are values that the rest of the crate
//! writes to cgroups.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod budget;
mod burst;
mod controller;
mod cpus;
mod harm;
mod shares;
mod usage;
mod waits;

pub use budget::{NodeUsage, budget_cores, grown_cpus, grown_quota_usec};
pub use burst::{
    AnnotationError, BURST_ANNOTATION, BurstLimits, BurstPolicy, Candidate, Ineligible, PodBurst,
    burst_usec, burst_usec_before_resize, eligible,
};
pub use controller::{Controller, ControllerSettings, Reason, Signal, Step, Target, Transition};
pub use cpus::keep_cpus;
pub use harm::{Harm, HarmMeter, Harms};
pub use shares::share_cores;
pub use usage::ContainerUsage;
