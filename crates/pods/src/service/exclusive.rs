//! The task that keeps the kubelet's exclusive CPUs: asked after every change of the pods, and regularly, because an
//! allocation may change without one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::schedule::jittered;
use super::{Beat, Shared, lock};
use crate::source::pod_resources::PodResourcesSocket;
use crate::source::{SourceError, SourceName};

/// The kubelet allocates before it starts a container, and lists the container's pod earlier still: what a change of
/// the pods announces is there a moment later.
const SETTLE: Duration = Duration::from_millis(500);

/// Asks for ever.
pub(super) async fn keep_exclusive_cpus(
    shared: Arc<Shared>,
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
                    statuses.succeeded(SourceName::PodResources, cpus.containers.len(), SystemTime::now());
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

async fn pods_changed(shared: &Shared, generation: u64) {
    let mut progress = shared.progress.subscribe();
    // The sender lives in `shared`: the wait cannot fail.
    let _ = progress.wait_for(|_| shared.index.load().generation() != generation).await;
}
