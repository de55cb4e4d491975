//! Recordings of a node's frames: the file format, and a ring of files with a bounded size.
//!
//! A recording is a sequence of segments, in one file or in the files of a directory. A segment
//! begins with a header (magic, version, node, names of the columns), and each record after it is
//! one frame. Records are compressed with a common window and flushed one by one, so that a process
//! that is killed loses at most the frame that it was writing; each has a checksum that includes
//! the one before it, so that a damaged record ends its segment and no frame is invented.
//!
//! A record has only what changed since the one before it: rows that appeared or disappeared, and
//! values, which have three digits (see [`pack`](crate::pack)).

mod codec;
mod error;
mod reader;
mod recorder;
mod ring;
mod segment;
mod table;
mod thin;
mod wire;

pub use codec::FrameTotals;
pub use error::Error;
pub use reader::{Note, Recording, earliest_ms};
pub use recorder::Recorder;
pub use ring::{LEAST_SIZE, Ring, RingConfig};
pub use segment::{FileEncoder, Origin, encode};
pub use thin::Thinner;
pub use wire::VERSION;
