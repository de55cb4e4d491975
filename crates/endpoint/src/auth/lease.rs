//! The right to read a stream, which ends when its token is no longer valid.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Time between two checks. With the lifetime of a cached answer, 120 s, a stream ends at most this
/// much later than its token's other requests.
const CHECK_EVERY: Duration = Duration::from_secs(30);

type Check = dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync;

/// The right of one request.
#[derive(Clone)]
pub(crate) struct Lease {
    still_valid: Arc<Check>,
    check_every: Duration,
}

impl Lease {
    /// A right that lasts as long as `still_valid` says so.
    pub(crate) fn new<F>(still_valid: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let still_valid = Arc::new(move || Box::pin(still_valid()) as Pin<Box<_>>);
        Self { still_valid, check_every: CHECK_EVERY }
    }

    /// The same right with another time between two checks.
    #[cfg(test)]
    pub(crate) fn checked_every(self, check_every: Duration) -> Self {
        Self { check_every, ..self }
    }

    /// Completes when the right has ended.
    pub(crate) async fn ended(self) {
        loop {
            tokio::time::sleep(self.check_every).await;
            if !self.is_still_valid().await {
                return;
            }
        }
    }

    pub(super) async fn is_still_valid(&self) -> bool {
        (self.still_valid)().await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lease")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_lease_ends_with_its_token() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let checks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&checks);
        let lease = Lease::new(move || {
            let check = counted.fetch_add(1, Ordering::Relaxed);
            async move { check < 3 }
        });
        runtime.block_on(lease.checked_every(Duration::from_millis(1)).ended());
        assert_eq!(checks.load(Ordering::Relaxed), 4);
    }
}
