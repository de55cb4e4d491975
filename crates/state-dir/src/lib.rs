//! The state directory: what the two writers of cgroups, pinning and yielding, keep across a crash
//! and between processes.
//!
//! Locks, the drain request, and the checkpoints with the original values, which are in files that
//! are replaced as a whole. Also the pauses after too many conflicts. All files are regular files of
//! a bounded size.

mod acting_mode;
mod checked_file;
mod drain_request;
mod error;
mod lock;
mod pause;
mod pinning_checkpoint;
mod regular;
mod yielding_checkpoint;

pub use acting_mode::ActingMode;
pub use checked_file::CheckedFile;
pub use drain_request::DrainRequest;
pub use error::{Error, Result};
pub use lock::{Lock, Writer};
pub use pause::{Pause, PauseLengths, Trouble};
pub use pinning_checkpoint::{Held, Narrowed, PinningCheckpoint, WrittenCgroup};
pub use yielding_checkpoint::{Original, Setting, SettingKey, Written, YieldingCheckpoint};

/// Default path of the state directory.
pub const STATE_DIR: &str = "/var/lib/cpuwarden";
