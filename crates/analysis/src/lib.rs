//! What an owner should change, from what one container did: a replay of the CFS bandwidth rule for other limits,
//! memory, and findings with figures.
//!
//! Pure: windows come in, advice goes out; time is the number of windows.

mod cpu;
mod demand;
mod facts;
mod finding;
mod grid;
mod history;
mod hysteresis;
mod memory;
mod patch;
mod pod;
mod replay;
mod rules;
mod stretch;
mod window;

pub use cpu::{CpuAdvice, LimitAdvice, OBJECTIVE};
pub use facts::{Facts, Language, Place, Runtime, Spec};
pub use finding::{Finding, Kind, Severity};
pub use grid::LIMITS_CORES;
pub use history::{History, RETAINED_WINDOWS};
pub use hysteresis::Steady;
pub use memory::{Gogc, MemoryAdvice, memory_advice};
pub use patch::merged;
pub use pod::{Member, PodQuota};
pub use replay::{Bandwidth, Count, Replay};
pub use rules::findings;
pub use stretch::{READ_EVERY_NS, READINGS, Stretch};
pub use window::Window;
