//! The service as a source of names for the sampler.

use std::sync::Arc;
use std::time::Instant;

use kubepods::{PodIndex, PodNames};

use super::Pods;
use crate::cause::Cause;

impl PodNames for Pods {
    fn index(&self) -> Arc<PodIndex> {
        Self::index(self)
    }

    fn listed_at(&self) -> Option<Instant> {
        Self::listed_at(self)
    }

    fn ask(&self, pod_uid: &str, container_id: &str) {
        Self::ask(self, pod_uid, container_id);
    }

    fn withdraw(&self, container_id: &str) {
        Self::withdraw(self, container_id);
    }

    fn pod_lives(&self, pod_uid: &str, lives: bool) {
        Self::pod_lives(self, pod_uid, lives);
    }

    fn missing(&self) -> Option<&'static str> {
        self.has_source().then(|| self.names_missing().map_or("", Cause::reason))
    }

    fn may_answer(&self) -> bool {
        let status = self.status();
        status.iter().any(|source| source.ever() || source.error.is_none())
    }
}
