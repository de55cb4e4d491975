//! Access to the names of cgroups, for consumers that do not know their source.

use std::sync::Arc;
use std::time::Instant;

use crate::index::PodIndex;

/// Source of the names of cgroups. No method waits.
pub trait PodNames: Send {
    /// The latest known pods.
    fn index(&self) -> Arc<PodIndex>;
    /// Start time of the request for the latest list, even if that list did not change the index;
    /// `None` before the first. Without it, no list proves a cgroup to be a sandbox.
    fn listed_at(&self) -> Option<Instant> {
        None
    }
    /// Reports a cgroup that has no name in the current index. May be called at every tick.
    fn ask(&self, pod_uid: &str, container_id: &str);
    /// Cancels the request for the name of this cgroup.
    fn withdraw(&self, _container_id: &str) {}
    /// Reports that the cgroup of this pod exists, or is gone.
    fn pod_lives(&self, _pod_uid: &str, _lives: bool) {}
    /// The reason why no source of names answers, empty if one does; `None` if names are disabled.
    fn missing(&self) -> Option<&'static str> {
        None
    }
    /// Whether a name may come soon: some source has answered or is being asked for the first time.
    fn may_answer(&self) -> bool;
}
