//! Messages of ttrpc: unary requests and responses.
//!
//! A message is a header of ten bytes and a payload. The header is the payload's length and the
//! stream's number, both 32-bit big-endian, the kind and flags. Streams that a client opens have
//! odd numbers.

use std::mem;

use crate::error::WireError;
use crate::mux;

/// Length of a message's header.
pub(crate) const HEADER: usize = 10;
/// Maximum length of a message's payload, the same as in the Go library.
pub(crate) const MAX_MESSAGE: usize = 4 << 20;

/// Kind of a message that opens a stream.
pub(crate) const REQUEST: u8 = 1;
/// Kind of a message that answers a request.
pub(crate) const RESPONSE: u8 = 2;

/// Status code for a method that the server does not have.
const UNIMPLEMENTED: i32 = 12;

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) stream: u32,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

/// Splits a connection's bytes into messages. Memory grows with the bytes received, not with the
/// announced length.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    header: [u8; HEADER],
    /// Bytes of `header` that were read.
    filled: usize,
    payload: Vec<u8>,
}

impl Messages {
    /// The next message, if `input` completes it. `None` means that all of `input` was read.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, WireError> {
        if !mux::fill(&mut self.header, &mut self.filled, input) {
            return Ok(None);
        }
        let length = mux::length(mux::number(&self.header, 0));
        if length > MAX_MESSAGE {
            return Err(WireError::LongMessage { length });
        }
        let (part, rest) = input.split_at((length - self.payload.len()).min(input.len()));
        self.payload.extend_from_slice(part);
        *input = rest;
        if self.payload.len() < length {
            return Ok(None);
        }
        self.filled = 0;
        let payload = mem::take(&mut self.payload);
        Ok(Some(Message { stream: mux::number(&self.header, 4), kind: self.header[8], payload }))
    }
}

/// The payload of a request.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) payload: Vec<u8>,
    /// Time that the client waits, nanoseconds; 0: no limit.
    #[prost(int64, tag = "4")]
    pub(crate) timeout_nano: i64,
}

/// The payload of a response.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    /// Absent for success.
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

impl Response {
    pub(crate) fn unimplemented(service: &str, method: &str) -> Self {
        let message = format!("/{service}/{method} is not implemented");
        Self { status: Some(Status { code: UNIMPLEMENTED, message }), payload: Vec::new() }
    }
}

/// A whole message with its header. `Err` with the payload's length if that is over the limit.
pub(crate) fn encode(
    stream: u32,
    kind: u8,
    payload: &impl prost::Message,
) -> Result<Vec<u8>, usize> {
    let length = payload.encoded_len();
    let wire_length = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE).ok_or(length)?;
    let mut message = Vec::with_capacity(HEADER + length);
    message.extend_from_slice(&wire_length.to_be_bytes());
    message.extend_from_slice(&stream.to_be_bytes());
    message.extend_from_slice(&[kind, 0]);
    message.extend_from_slice(&payload.encode_to_vec());
    Ok(message)
}
