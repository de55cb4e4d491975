//! What is granted, and what the checkpoint says about it.

use std::path::Path;

use placement::Current;

use super::{PinnerConfig, chain};
use crate::checkpoint::{Checkpoint, Held};

/// What is granted, in memory and on disk.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) checkpoint: Checkpoint,
    /// The checkpoint as it was written last.
    pub(super) saved: Option<Checkpoint>,
    /// The last attempt to write it has failed.
    pub(super) unsaved: bool,
    /// What is granted.
    pub(super) committed: Current,
    /// What the next plan starts from: what is granted or was about to be; in observation, what would be.
    pub(super) planned: Current,
    /// What there was at the start, until the first plan.
    pub(super) found: Found,
}

/// The checkpoint at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It has been read, or is not needed any more.
    Known,
    /// There is none: running pods are taken at their cpusets' word.
    Missing,
    /// It cannot be read: an agent has confined pods here.
    Damaged,
}

impl Record {
    /// Reads the checkpoint of this boot, of cgroups below `mount`.
    pub(super) fn read(config: &PinnerConfig, mount: &Path) -> Self {
        let (mut checkpoint, found) = match Checkpoint::of_this_boot(&config.node.state_dir, &config.node.proc_root) {
            Ok(Some(checkpoint)) => (checkpoint, Found::Known),
            Ok(None) => (Checkpoint::default(), Found::Missing),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(error, "running pods keep the CPUs that their cpusets show");
                (Checkpoint::default(), Found::Damaged)
            }
        };
        checkpoint.relocate(mount);
        let committed = checkpoint.committed.to_current();
        let planned = checkpoint.intent.as_ref().map_or_else(|| committed.clone(), Held::to_current);
        let saved = (found == Found::Known).then(|| checkpoint.clone());
        Self { checkpoint, saved, unsaved: false, committed, planned, found }
    }

    /// Everything was given back.
    pub(super) fn clear(&mut self) {
        self.checkpoint = Checkpoint::default();
        self.saved = None;
        self.committed = Current::default();
    }
}
