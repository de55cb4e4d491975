//! Compares the advice with the behavior of this machine's kernel.
//!
//! Not among the `kernel` tests. On an emulated CPU a thread's CPU time is the host's wall time, so
//! a burst of 30 ms takes 30 ms to 100 ms. The QEMU node also has no Go.

mod command;
mod go;
mod load;
mod rare_bursts;
mod replay;
mod shapes;
mod windows;
