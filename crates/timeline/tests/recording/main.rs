//! Recordings: the file format, and the ring on disk.

mod contents;
mod node;
mod ring;
