//! JSON of an answer, and its compression.

use std::io::Write as _;

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use metrics::exposition::accepts_gzip;

/// Serializes an answer. Its types have only string keys, so that it cannot fail.
pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Whether the client of a request with this header accepts gzip.
pub(super) fn reads_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepts_gzip(accepted.unwrap_or_default())
}

/// Size from which an answer is compressed, bytes.
const COMPRESSED_FROM: usize = 4 << 10;

/// The answer as gzip; `None` if it is too small to be worth it.
pub(super) fn gzip(answer: &[u8], level: Compression) -> Option<Bytes> {
    if answer.len() < COMPRESSED_FROM {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(answer.len() / 4), level);
    encoder.write_all(answer).ok()?;
    encoder.finish().ok().map(Into::into)
}
