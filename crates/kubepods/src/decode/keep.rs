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
pub(super) const ANNOTATION: usize = 4 << 10;

/// Maximum length of any string of a list, bytes. The API server accepts objects of up to 1.5 MiB.
pub(super) const STRING: usize = 2 << 20;

/// Maximum number of elements in each list of a pod, such as its containers and labels. A pod with
/// more is refused.
pub const POD_OBJECTS: usize = 500;

/// Maximum number of pods of a node; the others are refused.
pub const PODS: usize = 5_000;

/// Maximum number of containers of a node; the pods beyond it are refused.
pub const CONTAINERS: usize = 20_000;

/// The number of pods and containers that are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capacity {
    pods: usize,
    containers: usize,
}

impl Capacity {
    /// Counts a pod, if it fits.
    #[must_use]
    pub fn take(&mut self, pod: &Pod) -> bool {
        let containers = self.containers + pod.containers.len();
        let fits = self.pods < PODS && containers <= CONTAINERS;
        if fits {
            *self = Self { pods: self.pods + 1, containers };
        }
        fits
    }

    /// Counts a pod no longer.
    pub fn give_back(&mut self, pod: &Pod) {
        self.pods -= 1;
        self.containers -= pod.containers.len();
    }
}

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
        kept.map(|(key, value)| (bounded(key, NAME), bounded(value, NAME))).collect()
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
