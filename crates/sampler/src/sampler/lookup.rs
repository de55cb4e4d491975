//! The lookup of names: its source, and what it waits for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubepods::{PodIndex, PodNames};

use crate::cgroup::{CgroupId, ContainerKey};
use crate::naming::ExportedLabel;
use crate::series::SeriesId;
use crate::timing::Timing;

/// Information that the sampler awaits between ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Awaited {
    /// Nothing.
    #[default]
    Nothing,
    /// The names of cgroups that are shown without one.
    Names,
    /// The first name or usage of a new cgroup.
    Pending,
}

impl Awaited {
    /// Polling interval; `None` if there is nothing to look for.
    pub(super) fn polling_interval(self, timing: &Timing) -> Option<Duration> {
        match self {
            Self::Nothing => None,
            Self::Names => Some(timing.unnamed_poll),
            Self::Pending => Some(timing.pending_poll),
        }
    }
}

/// Lookups of names that are still to come.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    pub(super) awaited: Awaited,
    /// Time of the next lookup.
    pub(super) next: Option<Instant>,
}

impl Lookups {
    /// Records what a cgroup waits for.
    pub(super) fn wait_for(&mut self, awaited: Awaited) {
        self.awaited = self.awaited.max(awaited);
    }

    /// Records a lookup that is due then.
    pub(super) fn plan(&mut self, due: Instant) {
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
    }
}

/// A container that exited before it was named. Its counts are kept until it gets a name.
#[derive(Debug)]
pub(super) struct ExitedUnnamed {
    pub(super) key: ContainerKey,
    pub(super) found: Instant,
    pub(super) series: SeriesId,
    pub(super) pod: CgroupId,
    pub(super) is_shown: bool,
}

/// The source of names and its answers.
pub(super) struct NameLookup {
    pub(super) source: Box<dyn PodNames>,
    /// Labels of pods in the identities of their containers.
    pub(super) exported: Vec<ExportedLabel>,
    /// `/proc` of the node, which shows the sandboxes of runtimes.
    pub(super) proc_root: PathBuf,
    /// Pods as of the last tick.
    pub(super) index: Arc<PodIndex>,
    /// Generation of the pods among which sandboxed ones were searched for, and whether there were
    /// some.
    pub(super) sandboxed: Option<(u64, bool)>,
    pub(super) lookups: Lookups,
    /// Whether the source may answer, as of the last lookups.
    pub(super) may_answer: bool,
    /// Containers that exited before they were named.
    pub(super) exited: Vec<ExitedUnnamed>,
    /// Reason for the feature `pod_names`, as last returned by [`PodNames::missing`].
    pub(super) missing: Option<&'static str>,
}

impl NameLookup {
    pub(super) fn new(
        source: Box<dyn PodNames>,
        proc_root: PathBuf,
        exported: Vec<ExportedLabel>,
    ) -> Self {
        Self {
            source,
            exported,
            proc_root,
            index: Arc::default(),
            sandboxed: None,
            lookups: Lookups::default(),
            may_answer: false,
            exited: Vec::new(),
            missing: None,
        }
    }
}
