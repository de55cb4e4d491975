//! Tests on real cgroups of the running kernel: as root, on v1 or v2.

mod accounting;
mod advice;
mod agent;
mod burst;
mod condition;
mod contention;
mod crash_loop;
mod created;
mod demo;
mod doctor;
mod harness;
mod names;
mod pinning;
mod resize;
mod starvation;
mod throttling;
mod waits;
mod yielding;
