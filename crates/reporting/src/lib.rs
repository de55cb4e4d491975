//! Reports of what the agent did to the node: log lines for changes, metrics, Kubernetes Events,
//! and the state of the views. Separate from `pinning` and `yielding`, which therefore depend on
//! none of them.

mod burst;
mod colocation;
mod pinning;

pub use colocation::ColocationReporter;
pub use pinning::PinningReporter;
