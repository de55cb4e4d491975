//! Atomic publication of a value.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Access to the latest version of a value. Cheap to clone; reading takes no lock and never waits.
#[derive(Debug)]
pub struct Published<T>(Arc<ArcSwap<T>>);

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
        self.0.load_full()
    }

    /// Publishes a new version.
    pub fn publish(&self, value: T) {
        self.0.store(Arc::new(value));
    }

    /// Publishes a new version and returns the previous one.
    pub fn replace(&self, value: Arc<T>) -> Arc<T> {
        self.0.swap(value)
    }
}
