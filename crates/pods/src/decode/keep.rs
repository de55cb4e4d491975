//! How much is kept of what pods' authors write: a list must not cost the agent the memory that its authors choose.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::PodConfig;
use crate::model::Pod;

/// Labels that Koordinator's semantics read.
const KOORDINATOR: [&str; 2] = ["koordinator.sh/qosClass", "koordinator.sh/priority-class"];

/// Bytes that are kept of a name, a UID or a label's value: the API's own limit is 253 for the longest of them.
pub(super) const NAME: usize = 256;

/// Bytes that are kept of an image reference.
pub(super) const IMAGE: usize = 1024;

/// Bytes that are kept of an annotation: a longer one is cut, and then no valid JSON.
pub(super) const ANNOTATION: usize = 16 << 10;

/// Which labels are kept.
#[derive(Debug, Clone)]
pub(crate) enum LabelKeys {
    /// For readers of a single list.
    All,
    /// These, and what Koordinator's semantics read.
    Only(Arc<[Box<str>]>),
}

impl LabelKeys {
    pub(crate) fn of(config: &PodConfig) -> Self {
        Self::Only(config.label_keys.iter().map(|key| key.as_str().into()).collect())
    }

    fn has(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(keys) => KOORDINATOR.contains(&key) || keys.iter().any(|kept| **kept == *key),
        }
    }

    pub(super) fn kept(&self, labels: BTreeMap<Box<str>, Box<str>>) -> Vec<(Box<str>, Box<str>)> {
        let kept = labels.into_iter().filter(|(key, _)| self.has(key));
        kept.map(|(key, value)| (key, bounded(value, NAME))).collect()
    }

    /// The pod without the labels that are not kept.
    pub(crate) fn strip(&self, pod: Arc<Pod>) -> Arc<Pod> {
        let mut pod = Arc::unwrap_or_clone(pod);
        pod.labels.retain(|(key, _)| self.has(key));
        pod.labels.shrink_to_fit();
        Arc::new(pod)
    }
}

/// The text, cut to at most so many bytes.
pub(super) fn bounded(text: Box<str>, most: usize) -> Box<str> {
    if text.len() <= most { text } else { text[..text.floor_char_boundary(most)].into() }
}
