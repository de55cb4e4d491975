//! Reports of what the agent did to the node, and of contention on it: log lines for changes,
//! metrics, Kubernetes Events, the condition of the Node object, and the state of the views.
//! Separate from `pinning` and `yielding`, which therefore depend on none of them, and need no
//! client of the API server.

mod burst;
mod colocation;
mod events;
mod node_condition;
mod pinning;
mod writes;

pub use colocation::{ColocationReporter, Show};
pub use events::{EventSender, EventTask};
pub use node_condition::{Measured, NodeCondition};
pub use pinning::PinningReporter;
