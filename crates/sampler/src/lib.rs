//! The sampler: one tick reads every cgroup's counters, turns them into accumulated series, and
//! publishes one immutable [`NodeSnapshot`](snapshot::NodeSnapshot).
//!
//! This crate owns the hot path. It never talks to a kubelet, serves HTTP, or writes a control
//! file.

mod budget;
mod bulk;
mod cgroup;
mod contention;
mod counter;
mod features;
mod files;
mod governor;
mod missing;
mod naming;
mod nested;
mod own_process;
mod plan;
mod probe;
mod publish;
mod reading;
mod sampler;
mod series;
mod slow;
mod tasks;
mod thread;
mod timing;
mod tree;
mod wake;

pub use budget::DescriptorBudget;
pub use bulk::{BulkCounters, BulkSource};
pub use naming::ExportedLabel;
pub use sampler::{Sampler, SamplerConfig};
pub use slow::ExtraFiles;
pub use thread::{TickReport, spawn};
