//! JSON of an answer, and its compression.

use std::io::Write as _;

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Serializes an answer. Its types have only string keys, so that it cannot fail.
pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Size from which an answer is compressed, bytes.
const COMPRESSED_FROM: usize = 4 << 10;

/// The answer as gzip; `None` if it is too small to be worth it.
pub(super) fn gzip(answer: &[u8]) -> Option<Bytes> {
    if answer.len() < COMPRESSED_FROM {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(answer.len() / 4), Compression::fast());
    encoder.write_all(answer).ok()?;
    encoder.finish().ok().map(Into::into)
}
