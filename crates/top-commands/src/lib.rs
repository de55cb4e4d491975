//! The terminal view in a command: of a running agent, whose frames and advice it follows, or of
//! any other source, until a signal comes.

mod agent;
mod findings;
mod on_terminal;
mod signals;

pub use agent::{Shown, show_agent};
pub use findings::advice;
pub use on_terminal::{columns, show};
pub use signals::Signals;
