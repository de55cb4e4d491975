//! Streaming decoder from the JSON of a `PodList` to [`Pod`]s: one API object at a time, storing
//! only the fields that are kept.
//!
//! Bounded: at most [`PODS`] pods with [`CONTAINERS`] containers are kept, and no pod that has a list
//! of more than [`POD_OBJECTS`]. The others are counted.
//!
//! Tolerates what real kubelets send: `items: null`, pods without status, and unparsable quantities
//! (treated as absent). A list that ends early or is not a `PodList` is an error as a whole.

mod keep;
mod pod;
pub mod wire;

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::model::Pod;

use keep::STRING;
pub use keep::{CONTAINERS, Capacity, LabelKeys, POD_OBJECTS, PODS};
pub use pod::from_wire;
use wire::WirePod;

/// Reason why a list could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Invalid JSON, truncated, or a field of the wrong type. Also a failed reader: the source then
    /// has the error.
    #[error("invalid pod list")]
    Json(#[from] serde_json::Error),
    /// JSON, but without `items`.
    #[error("the answer is JSON but not a PodList: no items")]
    NotAList,
}

/// Reads a `PodList`; `items: null` is an empty list.
///
/// # Errors
/// [`DecodeError`] unless the text is exactly one complete list.
pub fn read_pod_list(reader: impl Read) -> Result<Vec<Arc<Pod>>, DecodeError> {
    let mut pods = Vec::new();
    read_pods_into(reader, &LabelKeys::All, &mut pods)?;
    Ok(pods)
}

/// Reads a `PodList` into `pods`, with the labels that `keep` names. Returns the number of pods that
/// were refused. After an error, `pods` contains those before the error.
///
/// # Errors
/// Same as [`read_pod_list`].
pub fn read_pods_into(
    reader: impl Read,
    keep: &LabelKeys,
    pods: &mut Vec<Arc<Pod>>,
) -> Result<u64, DecodeError> {
    let reader = ShortStrings { reader, length: None, is_escaped: false };
    let mut json = serde_json::Deserializer::from_reader(reader);
    let mut refused = 0;
    let items = Items { keep, pods, refused: &mut refused };
    let has_items = json.deserialize_map(ListVisitor(items))?;
    json.end()?;
    if has_items { Ok(refused) } else { Err(DecodeError::NotAList) }
}

/// Reads JSON, and fails at a string that is longer than any in a pod: the parser holds a string in
/// memory as a whole.
struct ShortStrings<R> {
    reader: R,
    /// Length so far of the string that is being read.
    length: Option<usize>,
    is_escaped: bool,
}

impl<R: Read> Read for ShortStrings<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(out)?;
        for &byte in &out[..read] {
            self.length = match (self.length, byte) {
                (None, b'"') => Some(0),
                (None, _) => None,
                (Some(_), b'"') if !self.is_escaped => None,
                (Some(length), _) => Some(length + 1),
            };
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            if self.length > Some(STRING) {
                let text = format!("a string of more than {} MiB", STRING >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(read)
    }
}

struct ListVisitor<'a>(Items<'a>);

impl<'de> Visitor<'de> for ListVisitor<'_> {
    /// Whether the list has `items`.
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PodList")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Items { keep, pods, refused } = self.0;
        let mut has_items = false;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == "items" {
                has_items = true;
                pods.clear();
                *refused = 0;
                map.next_value_seed(Items { keep, pods, refused })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(has_items)
    }
}

struct Items<'a> {
    keep: &'a LabelKeys,
    pods: &'a mut Vec<Arc<Pod>>,
    refused: &'a mut u64,
}

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of pods or null")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut capacity = Capacity::default();
        while self.pods.len() < PODS {
            let Some(wire) = seq.next_element::<WirePod>()? else { return Ok(()) };
            let pod = (!wire.is_too_large()).then(|| from_wire(wire, self.keep));
            match pod.filter(|pod| capacity.take(pod)) {
                Some(pod) => self.pods.push(Arc::new(pod)),
                None => *self.refused += 1,
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            *self.refused += 1;
        }
        Ok(())
    }
}
