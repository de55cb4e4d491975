//! Decoder of everything a runtime sends: frames of a trunk into messages of its two connections.

use crate::error::WireError;
use crate::mux::{self, Demux};
use crate::ttrpc::{Message, Messages};

/// A message from the runtime.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// On the connection where the runtime is the client.
    ToPlugin(Message),
    /// On the connection where the plugin is the client.
    FromRuntime(Message),
}

/// Decoder of a trunk. Holds at most one incomplete message per connection.
#[derive(Debug, Default)]
pub(crate) struct Trunk {
    demux: Demux,
    plugin: Messages,
    runtime: Messages,
}

impl Trunk {
    /// The next message that `input` completes. `None` when all of `input` was read. Bytes of other
    /// connections are dropped, as by the Go library.
    ///
    /// After an error, the position in the stream is lost: the connection must be closed.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, WireError> {
        while let Some((connection, piece)) = self.demux.peek(input)? {
            let mut rest = piece;
            let incoming = match connection {
                mux::PLUGIN => self.plugin.next(&mut rest)?.map(Incoming::ToPlugin),
                mux::RUNTIME => self.runtime.next(&mut rest)?.map(Incoming::FromRuntime),
                _ => {
                    rest = &[];
                    None
                }
            };
            self.demux.consume(input, piece.len() - rest.len());
            if incoming.is_some() {
                return Ok(incoming);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ttrpc::{self, Request};

    /// All messages of `bytes`, fed in pieces of `step` bytes, and the error that ends them.
    fn decode(bytes: &[u8], step: usize) -> (Vec<Incoming>, Option<String>) {
        let (mut trunk, mut messages) = (Trunk::default(), Vec::new());
        for mut piece in bytes.chunks(step.max(1)) {
            loop {
                match trunk.next(&mut piece) {
                    Ok(Some(incoming)) => messages.push(incoming),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error.to_string())),
                }
            }
            assert!(piece.is_empty(), "{} bytes were not read", piece.len());
        }
        (messages, None)
    }

    fn request(stream: u32, payload: usize) -> (Message, Vec<u8>) {
        let request = Request {
            service: "service".into(),
            method: "Method".into(),
            payload: vec![9; payload],
            timeout_nano: 2_000_000_000,
        };
        let bytes = ttrpc::encode(stream, ttrpc::REQUEST, &request).unwrap();
        let payload = bytes[ttrpc::HEADER..].to_vec();
        (Message { stream, kind: ttrpc::REQUEST, payload }, bytes)
    }

    #[test]
    fn a_frame_split_at_every_byte_decodes_to_the_same_messages() {
        let ((first, one), (second, two)) = (request(1, 3), request(3, 5000));
        let mut bytes = Vec::new();
        mux::append_frames(mux::PLUGIN, &one, &mut bytes);
        mux::append_frames(mux::RUNTIME, &two, &mut bytes);
        let expected = [Incoming::ToPlugin(first), Incoming::FromRuntime(second)];
        for cut in 0..=bytes.len() {
            let (mut trunk, mut messages) = (Trunk::default(), Vec::new());
            for mut piece in [&bytes[..cut], &bytes[cut..]] {
                while let Some(incoming) = trunk.next(&mut piece).unwrap() {
                    messages.push(incoming);
                }
            }
            assert_eq!(messages, expected, "cut at {cut}");
        }
    }

    #[test]
    fn messages_of_interleaved_connections_and_frames_are_kept_apart() {
        let ((first, one), (second, two)) = (request(1, 30), request(1, 40));
        let mut bytes = Vec::new();
        for (one, two) in one.chunks(7).zip(two.chunks(9)) {
            mux::append_frames(mux::PLUGIN, one, &mut bytes);
            mux::append_frames(77, b"another connection", &mut bytes);
            mux::append_frames(mux::RUNTIME, two, &mut bytes);
        }
        let pairs = one.chunks(7).count().min(two.chunks(9).count());
        mux::append_frames(mux::PLUGIN, &one[(7 * pairs).min(one.len())..], &mut bytes);
        mux::append_frames(mux::RUNTIME, &two[(9 * pairs).min(two.len())..], &mut bytes);
        let (messages, error) = decode(&bytes, bytes.len());
        assert_eq!(error, None);
        assert!(messages.contains(&Incoming::ToPlugin(first)));
        assert!(messages.contains(&Incoming::FromRuntime(second)));
        assert_eq!(messages.len(), 2);
    }

    #[test]
    fn two_messages_in_one_frame_are_both_decoded() {
        let ((first, mut one), (second, two)) = (request(1, 0), request(3, 1));
        one.extend_from_slice(&two);
        let mut bytes = Vec::new();
        mux::append_frames(mux::PLUGIN, &one, &mut bytes);
        let (messages, error) = decode(&bytes, 1);
        assert_eq!(error, None);
        assert_eq!(messages, [Incoming::ToPlugin(first), Incoming::ToPlugin(second)]);
    }

    #[test]
    fn a_message_over_the_limit_is_an_error_before_its_payload_arrives() {
        let mut bytes = Vec::new();
        let mut header = [0; ttrpc::HEADER];
        header[..4].copy_from_slice(&(4_194_305_u32).to_be_bytes());
        mux::append_frames(mux::PLUGIN, &header, &mut bytes);
        let (messages, error) = decode(&bytes, 1);
        assert!(messages.is_empty());
        assert_eq!(error.unwrap(), "a message of 4194305 bytes, longer than 4194304");
    }

    #[test]
    fn any_bytes_decode_alike_in_any_pieces_and_bounded_memory() {
        let tokens: [&[u8]; 3] = [b"\0\0\0\x01\0\0\0\x0a", b"\0\0\0\x02\0\0\0\x01", b"\0\0\0\0"];
        corpus::run(env!("CARGO_MANIFEST_DIR"), "trunk", &tokens, |bytes| {
            // A message without payload takes ten bytes of input.
            let limit = (16 << 10) + 32 * bytes.len();
            let whole = corpus::within(limit, || decode(bytes, bytes.len()));
            for step in [1, 7, 4096] {
                assert_eq!(decode(bytes, step), whole, "in pieces of {step} bytes");
            }
        });
    }
}
