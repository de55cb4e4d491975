//! Atomic publication of a value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

/// Access to the latest version of a value. Cheap to clone; reading takes no lock and never waits.
#[derive(Debug)]
pub struct Published<T>(Arc<Slot<T>>);

#[derive(Debug, Default)]
struct Slot<T> {
    value: ArcSwap<T>,
    version: AtomicU64,
}

impl<T: Default> Default for Published<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Published<T> {
    /// Returns the latest version; the default before the first.
    #[must_use]
    pub fn latest(&self) -> Arc<T> {
        self.0.value.load_full()
    }

    /// Returns the number of the latest version. A reader that wants to know later whether its
    /// value is the latest reads the number first, and need not keep the value.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Publishes a new version.
    pub fn publish(&self, value: T) {
        self.replace(Arc::new(value));
    }

    /// Publishes a new version and returns the previous one.
    pub fn replace(&self, value: Arc<T>) -> Arc<T> {
        let previous = self.0.value.swap(value);
        self.0.version.fetch_add(1, Ordering::Release);
        previous
    }
}
