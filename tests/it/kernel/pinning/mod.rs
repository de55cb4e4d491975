//! Pinning on real cpusets: exclusive CPUs are exclusive at every step, across crashes and other
//! writers, until they are released.

pub(in crate::kernel) mod agent;
mod answers;
mod authorized;
mod churn;
mod claimed;
mod crash;
mod drained;
mod enforce;
pub(super) mod events;
mod foreign;
mod given_back;
mod hotplug;
mod nested;
mod observe;
mod placed;
mod resized;
mod rival;
mod scene;
mod starts;
mod unknown;
