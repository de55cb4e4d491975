//! The model of a node: the snapshot that a tick publishes, its rows and identities, and waits
//! with their causes.
//!
//! Plain values. The sampler and the trace fill them; metrics, advice and the other consumers only
//! read them and never access the kernel.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod container;
mod gc;
pub mod labels;
mod limit;
mod node;
mod published;
mod waits;
mod window;

pub use container::{
    CfsTotals, ContainerIdentity, ContainerRow, CpuWeight, CpusetRow, KernelCounters, SpecRow,
    Threads, WINDOW_BUCKETS, WindowHistogram,
};
pub use gc::{ContainerGc, GcInterval, GcSettings, GcUnread, NodeGc};
pub use kernel_text::{Bandwidth, CpuPlace, CpuTimes, Quota, WeightRule};
pub use limit::{CpuLimit, Limit};
pub use node::{
    CgroupKind, CgroupRow, FeatureState, KernelInfo, MissingContainer, NodeRow, NodeSnapshot,
    PodIdentity, PodRow, ProcessRow, SamplerRow,
};
pub use published::Published;
pub use waits::{
    ByRow, ContainerWaits, Culprit, Histogram, InterferenceRow, LATENCY_BOUNDS_NS, Losses,
    LostTime, NodeWaits, PollLosses, PressureRow, PressureScope, STALL_BOUNDS_NS, SmtShares,
    TraceMode, TraceRow, share,
};
pub use window::{WINDOW, ends_window};
