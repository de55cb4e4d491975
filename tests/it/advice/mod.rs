//! Advice held against what this machine's kernel then does.
//!
//! Not among the `kernel` tests: on an emulated CPU a thread's CPU time is the host's wall time, so that a burst of 30 ms
//! is one of anything between 30 ms and 100 ms, and there is no Go in the node.

mod command;
mod go;
mod load;
mod rare_bursts;
mod replay;
mod shapes;
mod windows;
