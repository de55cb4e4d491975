//! Polling: picks the best HTTP source that is not in backoff, and checks its answer.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kubepods::model::Pod;

use super::empty::EmptyLists;
use super::schedule::{Backoff, Schedule};
use super::{ServiceState, lock};
use crate::source::SourceError;
use crate::source::body::Listed;
use crate::source::http::KubeletHttp;

/// The polled sources.
#[derive(Debug)]
pub(super) struct Poller {
    sources: Vec<(KubeletHttp, Backoff)>,
    schedule: Schedule,
    empty: EmptyLists,
}

impl Poller {
    /// Creates the poller; `sources` are sorted by preference.
    pub(super) fn new(sources: Vec<KubeletHttp>, interval: Duration) -> Self {
        Self {
            sources: sources.into_iter().map(|source| (source, Backoff::default())).collect(),
            schedule: Schedule::new(interval, Instant::now()),
            empty: EmptyLists::default(),
        }
    }

    /// Time of the next poll; `None` without a source to poll.
    pub(super) fn due(&self, shared: &ServiceState) -> Option<Instant> {
        if self.sources.is_empty() {
            return None;
        }
        let now = Instant::now();
        let open = self.sources.iter().any(|(_, backoff)| backoff.is_over(now));
        let asks = lock(&shared.asks);
        Some(self.schedule.due(asks.due(), asks.due_at_once(), open))
    }

    /// Polls once. Returns `None` if no source has answered with an accepted list.
    pub(super) async fn poll(&mut self, shared: &ServiceState) -> Option<Listed> {
        let begun = Instant::now();
        self.schedule.begin(begun);
        let answer = self.first_answer(shared, begun).await;
        if answer.is_some() {
            self.schedule.answered(Instant::now(), fastrand::f64());
        } else {
            let retry = self.sources.iter().filter_map(|(_, backoff)| backoff.until()).min();
            self.schedule.failed(retry.unwrap_or(begun));
        }
        answer
    }

    async fn first_answer(&mut self, shared: &ServiceState, begun: Instant) -> Option<Listed> {
        for (source, backoff) in
            self.sources.iter_mut().filter(|(_, backoff)| backoff.is_over(begun))
        {
            let listed = source.fetch().await.and_then(|Listed { pods, is_cut }| {
                if is_cut {
                    lock(&shared.statuses).list_was_cut(source.name(), pods.len());
                }
                let last = lock(&shared.publisher).listed().to_vec();
                let known_run = shared.any_runs(&last);
                if self.empty.believes(
                    pods.is_empty(),
                    known_run || lock(&shared.asks).any(),
                    begun,
                ) {
                    return Ok(Listed { pods, is_cut });
                }
                // The kubelet removes static pods and force-deleted pods from its list before their
                // containers end.
                let is_leaving = |pod: &Arc<Pod>| pod.deleting || pod.static_hash.is_some();
                match known_run && last.iter().all(is_leaving) {
                    // A rejected answer ends no report.
                    true => Ok(Listed { pods: last, is_cut: true }),
                    false => Err(SourceError::EmptyList),
                }
            });
            match listed {
                Ok(listed) => {
                    backoff.succeeded();
                    let (count, now) = (listed.pods.len(), SystemTime::now());
                    lock(&shared.statuses).succeeded(source.name(), count, now);
                    return Some(listed);
                }
                Err(error) => {
                    backoff.failed(Instant::now(), fastrand::f64());
                    lock(&shared.statuses).failed(source.name(), &error);
                }
            }
        }
        None
    }
}
