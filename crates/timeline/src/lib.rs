//! The last ten minutes of a node, second by second: the data of the terminal view, the page, the
//! JSON API and recordings.
//!
//! [`Frame`] is one second, as all views show it. [`Timeline`] builds frames from the sampler's
//! snapshots and keeps the history in a ring whose memory is reserved at the start.

mod counters;
mod cpus;
mod frame;
mod history;
mod measure;
mod packed;
mod series;
mod timeline;

pub use frame::{
    BestEffort, Bounds, Colocation, ContainerFrame, ContainerName, Contention, CpuFrame, Frame,
    Interference, NodeFrame, PodName, Rates, Trace,
};
pub use history::{BYTES_PER_CONTAINER, BYTES_PER_PAIR};
pub use measure::Measure;
pub use packed::{pack, unpack};
pub use series::{Aggressor, PairSeries, Points, Series};
pub use snapshot::PressureScope;
pub use timeline::{KEPT, MAX_CONTAINERS, MAX_PAIRS, ROUND, Selection, Timeline, TimelineConfig};
