//! Pinning on real cpusets: that exclusive means exclusive, at every step, across crashes and rivals, and until it is
//! taken back.

mod agent;
mod authorized;
mod churn;
mod crash;
mod drained;
mod enforce;
mod events;
mod given_back;
mod hotplug;
mod nested;
mod observe;
mod rival;
mod scene;
mod unknown;
