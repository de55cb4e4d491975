//! Trunk frames: several logical connections over one socket.
//!
//! A frame is the connection's number and the payload's length, both 32-bit big-endian, and the
//! payload. A connection is a byte stream: frames and messages have no common boundaries.

use crate::error::WireError;
use crate::ttrpc;

/// Connection on which the runtime calls the plugin.
pub(crate) const PLUGIN: u32 = 1;
/// Connection on which the plugin calls the runtime.
pub(crate) const RUNTIME: u32 = 2;

/// Length of a frame's header.
const HEADER: usize = 8;

/// Maximum length of a payload, the same as in the Go library.
pub(crate) const MAX_PAYLOAD: usize = ttrpc::HEADER + ttrpc::MAX_MESSAGE;

/// Length of Go's read buffer. A read into it fails with ENOMEM if the next frame is longer, so the
/// first frame of a message must fit. Go reads the rest of the message, if longer than the buffer,
/// straight into memory of its exact length: the rest must be one frame.
const GO_BUFFER: usize = 4096;

/// Splits a trunk's bytes into payloads. Holds at most one header.
#[derive(Debug, Default)]
pub(crate) struct Demux {
    header: [u8; HEADER],
    /// Bytes of `header` that were read.
    filled: usize,
    /// Connection of the current frame.
    connection: u32,
    /// Bytes of the current payload still to come.
    left: usize,
}

impl Demux {
    /// The connection of the next bytes and those of them that are in the same frame. They stay in
    /// `input` until [`Demux::consume`]. `None` at the end of `input`.
    pub(crate) fn peek<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<(u32, &'a [u8])>, WireError> {
        while self.left == 0 && !input.is_empty() {
            if fill(&mut self.header, &mut self.filled, input) {
                self.filled = 0;
                self.connection = number(&self.header, 0);
                self.left = length(number(&self.header, 4));
                if self.left > MAX_PAYLOAD {
                    return Err(WireError::LongFrame { length: self.left });
                }
            }
        }
        let piece = &input[..self.left.min(input.len())];
        Ok((!piece.is_empty()).then_some((self.connection, piece)))
    }

    /// Removes bytes from `input` that the last [`Demux::peek`] returned.
    pub(crate) fn consume(&mut self, input: &mut &[u8], count: usize) {
        *input = &input[count..];
        self.left -= count;
    }
}

/// Appends a message as frames that the Go library can read.
pub(crate) fn append_frames(connection: u32, message: &[u8], out: &mut Vec<u8>) {
    let (first, rest) = message.split_at(message.len().min(GO_BUFFER));
    for payload in [first, rest].into_iter().filter(|payload| !payload.is_empty()) {
        out.extend_from_slice(&connection.to_be_bytes());
        // At most MAX_PAYLOAD.
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(payload);
    }
}

/// Moves bytes from `input` into a header. Returns whether the header is complete.
pub(crate) fn fill(header: &mut [u8], filled: &mut usize, input: &mut &[u8]) -> bool {
    let (part, rest) = input.split_at((header.len() - *filled).min(input.len()));
    header[*filled..*filled + part.len()].copy_from_slice(part);
    *filled += part.len();
    *input = rest;
    *filled == header.len()
}

/// The big-endian number at a place of a header.
pub(crate) fn number(header: &[u8], at: usize) -> u32 {
    header[at..at + 4].iter().fold(0, |number, &byte| (number << 8) | u32::from(byte))
}

/// A length from the wire; one that does not fit is over all limits.
pub(crate) fn length(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(message: usize) -> Vec<usize> {
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        append_frames(RUNTIME, &vec![7; message], &mut bytes);
        while !bytes.is_empty() {
            assert_eq!(number(&bytes, 0), RUNTIME);
            let length = length(number(&bytes, 4));
            lengths.push(length);
            bytes.drain(..HEADER + length);
        }
        lengths
    }

    #[test]
    fn the_first_frame_fits_gos_buffer_and_the_rest_is_one_frame() {
        assert_eq!(lengths(10), [10]);
        assert_eq!(lengths(4096), [4096]);
        assert_eq!(lengths(4097), [4096, 1]);
        assert_eq!(lengths(MAX_PAYLOAD), [4096, MAX_PAYLOAD - 4096]);
    }

    #[test]
    fn a_frame_longer_than_any_message_is_an_error() {
        let header = |length: usize| {
            let mut bytes = PLUGIN.to_be_bytes().to_vec();
            bytes.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
            bytes
        };
        assert!(Demux::default().peek(&mut &header(MAX_PAYLOAD)[..]).unwrap().is_none());
        let error = Demux::default().peek(&mut &header(MAX_PAYLOAD + 1)[..]).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 4194315 bytes, longer than 4194314");
    }
}
