//! Limits on pod data that is kept: pod authors must not control the agent's memory use.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Pod;

/// Labels used by Koordinator's semantics.
const KOORDINATOR: [&str; 2] = ["koordinator.sh/qosClass", "koordinator.sh/priority-class"];

/// Maximum length that is kept of a name, UID or label value, bytes. The API's own limit is 253 for
/// the longest of them.
pub(super) const NAME: usize = 256;

/// Maximum length that is kept of an image reference, bytes.
pub(super) const IMAGE: usize = 1024;

/// Maximum length that is kept of an annotation, bytes; a longer one is cut and is then invalid
/// JSON.
pub(super) const ANNOTATION: usize = 16 << 10;

/// Labels to keep.
#[derive(Debug, Clone)]
pub enum LabelKeys {
    /// All labels, for readers of a single list.
    All,
    /// These labels, and those used by Koordinator's semantics.
    Only(Arc<[Box<str>]>),
}

impl LabelKeys {
    fn has(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(keys) => {
                KOORDINATOR.contains(&key) || keys.iter().any(|kept| **kept == *key)
            }
        }
    }

    pub(super) fn kept(&self, labels: BTreeMap<Box<str>, Box<str>>) -> Vec<(Box<str>, Box<str>)> {
        let kept = labels.into_iter().filter(|(key, _)| self.has(key));
        kept.map(|(key, value)| (key, bounded(value, NAME))).collect()
    }

    /// Removes the labels that are not kept.
    #[must_use]
    pub fn strip(&self, pod: Arc<Pod>) -> Arc<Pod> {
        let mut pod = Arc::unwrap_or_clone(pod);
        pod.labels.retain(|(key, _)| self.has(key));
        pod.labels.shrink_to_fit();
        Arc::new(pod)
    }
}

/// Cuts the text to at most `most` bytes.
pub(super) fn bounded(text: Box<str>, most: usize) -> Box<str> {
    if text.len() <= most { text } else { text[..text.floor_char_boundary(most)].into() }
}
