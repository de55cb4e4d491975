//! Input and output that several commands share: values of options, a [`Failure`] with its exit
//! code, standard output, the log on standard error, plain tables, answers as text, and the version.

mod byte_size;
mod doctor;
mod failure;
mod flood;
mod human_duration;
mod legend;
mod listen_address;
pub mod log;
mod moment;
mod nearest;
pub mod output;
mod pins;
pub mod stderr;
pub mod table;
#[cfg(test)]
mod testing;

pub use byte_size::ByteSize;
pub use doctor::show_doctor;
pub use failure::Failure;
pub use human_duration::HumanDuration;
pub use legend::LEGEND;
pub use listen_address::{ListenAddress, listen_address};
pub use moment::Moment;
pub use nearest::nearest;
pub use pins::show_pins;

/// Git revision of this build: of the variable `CPUWARDEN_REVISION`, or of the checkout
/// (`build.rs`).
pub const REVISION: &str = match option_env!("CPUWARDEN_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// Version, revision and kind of this build.
#[must_use]
pub fn version() -> String {
    let kind = if cfg!(debug_assertions) { "debug" } else { "release" };
    let version = env!("CARGO_PKG_VERSION");
    format!("{version} (revision {REVISION}, {kind} build for {})", std::env::consts::ARCH)
}
