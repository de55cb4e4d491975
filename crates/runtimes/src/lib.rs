//! Which language runtime a process is, and how many threads it will run at once: from `/proc/PID`, its executable, and
//! what lies beside it.
//!
//! Of the environment only the variables of [`ALLOWED`] are looked at; nothing else of it is kept. What a program sets by
//! calls at run time (`runtime.GOMAXPROCS`) cannot be seen. Everything is written by whoever runs the container: reads are
//! bounded, and no link leads out of the container.

mod detect;
mod dotnet;
mod elf;
mod environment;
mod executable;
mod go;
mod jvm;
mod look;
mod parallelism;
#[cfg(test)]
mod parsers;
mod process;
mod version;

pub use detect::Detector;
pub use environment::ALLOWED;
pub use parallelism::Machine;
