//! Streaming decoder from the JSON of a `PodList` to [`Pod`]s: one API object at a time, storing
//! only the fields that are kept.
//!
//! Tolerates what real kubelets send: `items: null`, pods without status, and unparsable quantities
//! (treated as absent). A list that ends early or is not a `PodList` is an error as a whole.

mod keep;
mod pod;
pub mod wire;

use std::fmt;
use std::io::Read;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::model::Pod;

pub use keep::LabelKeys;
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

/// Reads a `PodList` into `pods`, with the labels that `keep` names. After an error, `pods`
/// contains those before the error.
///
/// # Errors
/// Same as [`read_pod_list`].
pub fn read_pods_into(
    reader: impl Read,
    keep: &LabelKeys,
    pods: &mut Vec<Arc<Pod>>,
) -> Result<(), DecodeError> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    let has_items = json.deserialize_map(ListVisitor(Items { keep, pods }))?;
    json.end()?;
    if has_items { Ok(()) } else { Err(DecodeError::NotAList) }
}

struct ListVisitor<'a>(Items<'a>);

impl<'de> Visitor<'de> for ListVisitor<'_> {
    /// Whether the list has `items`.
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PodList")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Items { keep, pods } = self.0;
        let mut has_items = false;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == "items" {
                has_items = true;
                pods.clear();
                map.next_value_seed(Items { keep, pods })?;
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
        while let Some(pod) = seq.next_element::<WirePod>()? {
            self.pods.push(Arc::new(from_wire(pod, self.keep)));
        }
        Ok(())
    }
}
