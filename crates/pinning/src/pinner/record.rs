//! The grants, in memory and in the checkpoint.

use std::path::Path;

use placement::Current;

use super::{PinnerConfig, chain};
use crate::checkpoint::{Checkpoint, Held};

/// The grants, in memory and on disk.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) checkpoint: Checkpoint,
    /// The checkpoint on disk.
    pub(super) saved: Option<Checkpoint>,
    /// Whether the last attempt to write the checkpoint failed.
    pub(super) unsaved: bool,
    /// Committed grants.
    pub(super) committed: Current,
    /// Grants from which the next plan starts: committed or in transition; in observation, those of
    /// the last plan.
    pub(super) planned: Current,
    /// State of the checkpoint at the start, until the first plan.
    pub(super) found: Found,
}

/// State of the checkpoint at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Read, or not needed any more.
    Known,
    /// Missing: running pods keep the CPUs that their cpusets show.
    Missing,
    /// Unreadable: an agent has confined pods here.
    Damaged,
}

impl Record {
    /// Reads the checkpoint of this boot, for cgroups below `mount`.
    pub(super) fn read(config: &PinnerConfig, mount: &Path) -> Self {
        let (mut checkpoint, found) = match Checkpoint::of_this_boot(
            &config.node.state_dir,
            &config.node.proc_root,
        ) {
            Ok(Some(checkpoint)) => (checkpoint, Found::Known),
            Ok(None) => (Checkpoint::default(), Found::Missing),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "failed to read the checkpoint; running pods keep the CPUs of their current cpusets"
                );
                (Checkpoint::default(), Found::Damaged)
            }
        };
        checkpoint.relocate(mount);
        let committed = checkpoint.committed.to_current();
        let planned =
            checkpoint.intent.as_ref().map_or_else(|| committed.clone(), Held::to_current);
        let saved = (found == Found::Known).then(|| checkpoint.clone());
        Self { checkpoint, saved, unsaved: false, committed, planned, found }
    }

    /// Clears the record after a drain.
    pub(super) fn clear(&mut self) {
        self.checkpoint = Checkpoint::default();
        self.saved = None;
        self.committed = Current::default();
    }
}
