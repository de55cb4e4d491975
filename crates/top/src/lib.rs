//! The terminal view of a node: who is slowed, by what and by whom, second by second.
//!
//! [`App`] is the state of the view. It takes [`Update`]s of a [`Source`] and keys, and draws into
//! a ratatui buffer; it does no IO. [`show`] connects it to this process's terminal until a signal
//! comes; [`run`] restores the terminal on return, on a panic, and when `stop` returns true.
//! [`table`] is the same as plain text. [`show_agent`] shows a running agent.

mod agent;
mod app;
mod cause;
mod columns;
mod filter;
mod findings;
mod history;
mod keys;
mod look;
mod names;
mod on_terminal;
mod plain;
mod playback;
mod rows;
mod signals;
mod source;
mod terminal;
mod text;
mod view;

pub use agent::{Shown, show_agent};
pub use app::App;
pub use findings::advice;
pub use history::SHOWN;
pub use look::Look;
pub use on_terminal::{columns, show};
pub use plain::table;
pub use playback::{Playback, Recording};
pub use signals::Signals;
pub use source::{Advice, Change, Control, Position, Source, Update};
pub use terminal::run;
