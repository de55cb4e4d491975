//! The terminal view of a node: who is delayed, by what and by whom, second by second.
//!
//! [`App`] is the state of the view. It takes [`Update`]s of a [`Source`] and keys, and draws into
//! a ratatui buffer; it does no IO. [`run`] connects it to a terminal, which it restores on return,
//! on a panic, and when `stop` returns true. [`table`] is the same as plain text.

mod app;
mod cause;
mod columns;
mod history;
mod keys;
mod live;
mod look;
mod plain;
mod playback;
mod rows;
mod source;
mod terminal;
mod text;
mod view;

pub use app::App;
pub use live::Live;
pub use look::Look;
pub use plain::table;
pub use playback::{Playback, Position, Recording};
pub use source::{Advice, Change, Control, Source, Update};
pub use terminal::run;
