//! Detects a process's language runtime and its parallelism, from `/proc/PID`, the executable, and
//! the files beside it. Reads the garbage collection of Go from the process's memory, and of a JVM
//! from its performance data.
//!
//! Only the environment variables of [`ALLOWED`] are read and kept. Values that a program sets at
//! run time (`runtime.GOMAXPROCS`) are not visible. All input is untrusted: reads are bounded, and
//! no link leads out of the container.

mod answers;
mod detect;
mod dotnet;
mod elf;
mod environment;
mod executable;
mod gc;
mod go;
mod jvm;
mod look;
mod node;
mod parallelism;
#[cfg(test)]
mod parsers;
mod process;
mod version;

pub use detect::Detector;
pub use environment::ALLOWED;
pub use gc::{GcReader, GcReading, Reading};
pub use parallelism::Machine;
