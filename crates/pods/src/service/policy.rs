//! The task that keeps the kubelet's CPU manager policy, for who wants to place containers beside it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use super::Shared;
use super::schedule::jittered;
use crate::source::chain;
use crate::source::http::KubeletHttp;

/// Asks until the service is gone. The last answer lives on while there is none.
pub(super) async fn keep_policy(shared: Weak<Shared>, mut kubelet: KubeletHttp, interval: Duration) {
    loop {
        match kubelet.cpu_manager_policy().await {
            Ok(policy) => {
                let Some(shared) = shared.upgrade() else { return };
                shared.policy.store(Some(Arc::new(policy)));
            }
            Err(error) => tracing::debug!(error = chain(&error), "the kubelet does not tell its CPU manager policy"),
        }
        sleep(jittered(interval, fastrand::f64())).await;
        if shared.strong_count() == 0 {
            return;
        }
    }
}
