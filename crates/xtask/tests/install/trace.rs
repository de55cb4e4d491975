//! The default profile, trace: eBPF under the runtime's default seccomp profile.

use std::time::Duration;

use super::agent;
use xtask::cluster::ensure;
use xtask::cluster::{Cluster, ClusterError, wait_until};

/// Maximum time for the trace to attach, on an emulated node.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The trace attaches, and series of waits appear; or its feature has a reason that is a cause.
pub(super) fn attaches_or_says_why(cluster: &Cluster) -> Result<String, ClusterError> {
    let ready = agent::install(cluster, &[])?;
    let mut state = None;
    let known = wait_until("known state of the trace", TIMEOUT, || {
        state = agent::feature(&agent::metrics(cluster)?, "sched_trace");
        Ok(state.is_some())
    });
    known?;
    match state {
        Some((true, _)) => {
            let mut waits = 0;
            wait_until("series of waits", TIMEOUT, || {
                let series = agent::metrics(cluster)?;
                waits = series
                    .iter()
                    .filter(|one| one.name.starts_with("cpuwarden_container_cpu_wait"))
                    .count();
                Ok(waits > 0)
            })?;
            Ok(format!("{ready}; attached, {waits} series of waits"))
        }
        Some((false, reason)) => {
            ensure(!reason.is_empty(), || "the trace is off without a reason".into())?;
            Err(ClusterError::Unexpected(format!("{ready}, but the trace is off: {reason}")))
        }
        None => Ok(ready),
    }
}
