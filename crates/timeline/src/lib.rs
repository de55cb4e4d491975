//! The last ten minutes of a node, second by second: the data of the terminal view, the page, the
//! JSON API and recordings.
//!
//! [`Timeline`] builds frames from the sampler's snapshots and keeps the history, whose memory is
//! bounded and grows with the number of changes. [`recording`] writes frames to disk and reads them back.

mod counters;
mod cpu_load;
mod history;
mod node;
mod observe;
mod packed;
mod queries;
mod recorded;
pub mod recording;
mod runs;
mod state;
mod timeline;

pub use history::{BYTES_PER_CONTAINER, BYTES_PER_PAIR};
pub use packed::{pack, unpack};
pub use queries::Selection;
pub use timeline::{MAX_CONTAINERS, MAX_PAIRS, ROUND, Timeline, TimelineConfig};
