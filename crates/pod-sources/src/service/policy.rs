//! The task that reads the kubelet's CPU manager policy, for code that places containers alongside
//! it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use kubepods::Reported;
use tokio::time::sleep;
use watchdog::errors::chain;

use super::schedule::jittered;
use super::{Beat, ServiceState};
use crate::source::http::KubeletHttp;

/// Number of failed attempts after which the last answer does not count: the kubelet may have been
/// restarted with another policy.
const BELIEVED_FOR: u32 = 2;

/// Polls until the service ends.
pub(super) async fn keep_policy(
    shared: Weak<ServiceState>,
    mut kubelet: KubeletHttp,
    interval: Duration,
    beat: Beat,
) {
    let mut failures = 0_u32;
    loop {
        beat(interval);
        match kubelet.cpu_manager_policy().await {
            Ok(policy) => {
                let Some(shared) = shared.upgrade() else { return };
                shared.policy.store(Arc::new(Reported::Read(policy.into_string())));
                failures = 0;
            }
            Err(error) => {
                let error = chain(&error);
                tracing::debug!(error, "the kubelet does not report its CPU manager policy");
                failures = failures.saturating_add(1);
                if failures == BELIEVED_FOR {
                    let Some(shared) = shared.upgrade() else { return };
                    shared.policy.store(Arc::new(Reported::Failed(error)));
                }
            }
        }
        sleep(jittered(interval, fastrand::f64())).await;
        if shared.strong_count() == 0 {
            return;
        }
    }
}
