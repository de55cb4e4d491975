//! The catalogue of every metric, the page that exposes them, and the reference that is generated from it.
//!
//! [`catalogue`] declares each metric once: name, type, labels, HELP text and, for what a tick publishes, how it is
//! read from the snapshot. [`exposition`] writes a page of them; [`AgentMetrics`] keeps what the agent counts about
//! itself between ticks. Nothing here opens a file, asks the sampler for anything, or serves HTTP.

mod advice;
mod agent;
pub mod catalogue;
pub mod exposition;
mod live;
mod pinning;

pub use advice::{AdviceMetrics, AdviceRow};
pub use agent::{AgentMetrics, Build};
pub use exposition::{Exposition, Format};
pub use pinning::PinningMetrics;
