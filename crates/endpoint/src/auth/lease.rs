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
pub(crate) struct Lease(Arc<Check>);

impl Lease {
    /// A right that lasts as long as `still_valid` says so.
    pub(crate) fn new<F>(still_valid: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(still_valid())))
    }

    /// Completes when the right has ended.
    pub(crate) async fn ended(self) {
        self.ended_if_checked(CHECK_EVERY).await;
    }

    async fn ended_if_checked(self, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            if !(self.0)().await {
                return;
            }
        }
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
        runtime.block_on(lease.ended_if_checked(Duration::from_millis(1)));
        assert_eq!(checks.load(Ordering::Relaxed), 4);
    }
}
