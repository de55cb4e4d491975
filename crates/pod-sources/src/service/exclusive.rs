//! The task that reads the kubelet's exclusive CPUs: after every change of the pods, and regularly,
//! because an allocation may change without one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::schedule::jittered;
use super::{Beat, ServiceState, lock};
use crate::source::pod_resources::PodResourcesSocket;
use crate::source::{SourceError, SourceName};

/// Delay after a change of the pods. The kubelet lists a pod before it allocates the CPUs, and
/// allocates before it starts a container: the allocation follows a moment later.
const SETTLE: Duration = Duration::from_millis(500);

/// Polls forever.
pub(super) async fn keep_exclusive_cpus(
    shared: Arc<ServiceState>,
    socket: PodResourcesSocket,
    interval: Duration,
    beat: Beat,
) {
    loop {
        beat(interval);
        let generation = shared.index.load().generation();
        let fetched = socket.fetch().await;
        {
            let mut statuses = lock(&shared.statuses);
            match fetched {
                Ok(cpus) => {
                    statuses.succeeded(
                        SourceName::PodResources,
                        cpus.containers.len(),
                        SystemTime::now(),
                    );
                    shared.exclusive.store(Arc::new(cpus));
                }
                Err(SourceError::Absent { .. }) => statuses.absent(SourceName::PodResources),
                Err(error) => statuses.failed(SourceName::PodResources, &error),
            }
        }
        shared.attempt_ended(false);
        tokio::select! {
            () = pods_changed(&shared, generation) => sleep(SETTLE).await,
            () = sleep(jittered(interval, fastrand::f64())) => {}
        }
    }
}

async fn pods_changed(shared: &ServiceState, generation: u64) {
    let mut progress = shared.progress.subscribe();
    // The sender is in `shared`, so the wait cannot fail.
    let _ = progress.wait_for(|_| shared.index.load().generation() != generation).await;
}
