//! Assignment of CPUs to pods, and the order in which the cpusets are written.
//!
//! Pure functions: a topology, the pods' claims and the current state go in; a plan and write steps
//! come out. No I/O and no clock: ages, sets and texts are arguments. Crate `pinning` carries the
//! steps out.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod best_effort;
mod plan;
mod pod;
mod policy;
mod reason;
mod steps;
mod take;
mod topology;

pub use best_effort::narrow;
pub use plan::{
    Class, Current, Holding, Kubelet, Node, Placement, PlacementSettings, Plan, PlanError, Pools,
    plan,
};
pub use pod::{
    Authorization, AuthorizationError, CpuQos, PRIORITY_CLASS_LABEL, Pod, Profile, ProfileError,
    Profiles, QOS_CLASS_LABEL, RESOURCE_SPEC_ANNOTATION, RESOURCE_STATUS_ANNOTATION, ResourceSpec,
    Selector, SpecError, Uid,
};
pub use policy::{Bind, BindPolicy, ExclusivePolicy, Exclusivity, NumaStrategy};
pub use reason::Reason;
pub use steps::{
    CpusetCgroup, CpusetHierarchy, PodCgroups, Step, StepError, Transition, drain_steps,
    widen_steps, write_steps,
};
pub use take::{Hold, Request, TakeError, Taken, fits, take};
pub use topology::{CoreKind, Cpu, Grid, Numbering, Topology, TopologyError};
