//! Which language runtime a process is, and how many threads it will run at once: from `/proc/PID/{exe,environ,cmdline}`.
//!
//! Of the environment only the variables of [`ALLOWED`] are looked at; nothing else of it is kept. What a program sets by
//! calls at run time (`runtime.GOMAXPROCS`) cannot be seen.

mod detect;
mod environment;
mod go;
mod jvm;
mod parallelism;

pub use detect::Detector;
pub use environment::ALLOWED;
pub use go::{BuildInfo, build_info};
