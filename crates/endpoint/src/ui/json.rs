//! JSON of an answer.

use axum::body::Bytes;

/// Serializes an answer. Its types have only string keys, so that it cannot fail.
pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}
