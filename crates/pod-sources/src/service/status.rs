//! Status of each source.

use std::time::SystemTime;

use kubepods::{CONTAINERS, POD_OBJECTS, PODS};
use watchdog::errors::chain;

use crate::cause::Cause;
use crate::source::{SourceError, SourceName};

/// Status of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    /// Name of the source.
    pub source: SourceName,
    /// Whether its last attempt succeeded; false before the first.
    pub up: bool,
    /// Time of the last successful attempt; the current time with a live watch.
    pub last_success: Option<SystemTime>,
    /// Error of the last attempt, including its causes; `None` while up and before the first
    /// attempt.
    pub error: Option<String>,
    /// Cause of that error.
    pub cause: Option<Cause>,
    /// Number of pods in its last valid list; for pod-resources, the number of containers with
    /// exclusive CPUs.
    pub pods: usize,
}

impl SourceStatus {
    fn fresh(source: SourceName) -> Self {
        Self { source, up: false, last_success: None, error: None, cause: None, pods: 0 }
    }

    /// Whether some attempt has succeeded.
    pub fn ever(&self) -> bool {
        self.last_success.is_some()
    }
}

#[derive(Debug)]
pub(super) struct Statuses {
    entries: Vec<SourceEntry>,
    /// Number of lists that exceeded the limit since the start.
    cut_lists: u64,
}

#[derive(Debug)]
struct SourceEntry {
    status: SourceStatus,
    /// Whether the node lacks this source.
    absent: bool,
}

impl Statuses {
    pub(super) fn of(sources: impl IntoIterator<Item = SourceName>) -> Self {
        let fresh = |source| SourceEntry { status: SourceStatus::fresh(source), absent: false };
        Self { entries: sources.into_iter().map(fresh).collect(), cut_lists: 0 }
    }

    /// Adds a source, unless it is there.
    pub(super) fn add(&mut self, source: SourceName) {
        if self.find(source).is_none() {
            self.entries.push(SourceEntry { status: SourceStatus::fresh(source), absent: false });
        }
    }

    pub(super) fn list(&self, now: SystemTime) -> Vec<SourceStatus> {
        let present =
            self.entries.iter().filter(|entry| !entry.absent).map(|entry| entry.status.clone());
        present
            .map(|status| match status.source {
                source if status.up && (is_watch(source) || source == SourceName::Nri) => {
                    SourceStatus { last_success: Some(now), ..status }
                }
                _ => status,
            })
            .collect()
    }

    pub(super) fn succeeded(&mut self, source: SourceName, pods: usize, now: SystemTime) {
        let Some(entry) = self.find(source) else { return };
        if !entry.status.up && entry.status.error.is_some() {
            tracing::info!(source = source.as_str(), pods, "pod source recovered");
        }
        entry.absent = false;
        entry.status = SourceStatus {
            source,
            up: true,
            last_success: Some(now),
            error: None,
            cause: None,
            pods,
        };
    }

    /// Records a failure; logs it unless the last one was the same.
    pub(super) fn failed(&mut self, source: SourceName, error: &SourceError) {
        let Some(entry) = self.find(source) else { return };
        let text = chain(error);
        if !entry
            .status
            .error
            .as_deref()
            .is_some_and(|before| is_same_but_for_numbers(before, &text))
        {
            tracing::warn!(source = source.as_str(), error = %text, "pod source is down");
        }
        entry.absent = false;
        entry.status.up = false;
        entry.status.error = Some(text);
        entry.status.cause = Some(error.cause());
    }

    /// Records that the node does not offer this source.
    pub(super) fn absent(&mut self, source: SourceName) {
        let Some(entry) = self.find(source) else { return };
        if entry.status.up {
            tracing::warn!(
                source = source.as_str(),
                "pod source removed: its socket no longer exists"
            );
        }
        entry.absent = !entry.status.ever();
        entry.status.up = false;
        entry.status.error = entry.status.ever().then(|| "its socket no longer exists".to_owned());
    }

    /// Records that the connection to the runtime is lost; its user logs the cause.
    pub(super) fn disconnected(&mut self, source: SourceName, error: String) {
        let Some(entry) = self.find(source) else { return };
        entry.status.up = false;
        (entry.status.error, entry.status.cause) = (Some(error), Some(Cause::Unreachable));
    }

    /// Records that a source was stopped because a better one is back.
    pub(super) fn stood_down(&mut self, source: SourceName) {
        let Some(entry) = self.find(source) else { return };
        entry.status.up = false;
        (entry.status.error, entry.status.cause) = (None, None);
    }

    /// Counts a list that exceeded a limit; the pods within the limits are known.
    pub(super) fn list_was_cut(&mut self, source: SourceName, pods: usize) {
        if self.cut_lists == 0 {
            tracing::warn!(
                source = source.as_str(),
                pods,
                most_pods = PODS,
                most_containers = CONTAINERS,
                most_in_a_pod = POD_OBJECTS,
                "the pod list is too large: pods beyond the limits have no names; delete pods with hundreds of \
                 containers or labels, and what keeps creating pods on this node"
            );
        }
        self.cut_lists += 1;
    }

    pub(super) fn cut_lists(&self) -> u64 {
        self.cut_lists
    }

    /// Whether a watch on the list reports every change at once.
    pub(super) fn has_live_watch(&self) -> bool {
        self.entries.iter().any(|entry| entry.status.up && is_watch(entry.status.source))
    }

    /// The cause of the best failed source if no source of names answers; `None` if one answers.
    pub(super) fn why_no_names(&self) -> Option<Cause> {
        if !self.has_naming() || self.naming().any(|status| status.up) {
            return None;
        }
        Some(self.naming().find_map(|status| status.cause).unwrap_or(Cause::Unreachable))
    }

    /// Whether any source provides names.
    pub(super) fn has_naming(&self) -> bool {
        self.naming().next().is_some()
    }

    fn naming(&self) -> impl Iterator<Item = &SourceStatus> {
        self.entries
            .iter()
            .map(|entry| &entry.status)
            .filter(|status| status.source != SourceName::PodResources)
    }

    fn find(&mut self, source: SourceName) -> Option<&mut SourceEntry> {
        self.entries.iter_mut().find(|entry| entry.status.source == source)
    }
}

fn is_watch(source: SourceName) -> bool {
    matches!(source, SourceName::PodsApi | SourceName::ApiServer)
}

/// Whether two error texts differ only in digits, such as times and ports.
fn is_same_but_for_numbers(one: &str, other: &str) -> bool {
    let words = |text| str::chars(text).filter(|c| !c.is_ascii_digit());
    words(one).eq(words(other))
}
