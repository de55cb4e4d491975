//! The grants, in memory and in the checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::Path;

use api::Rejection;
use cgroupfs::node;
use placement::Current;
use state_dir::PinningCheckpoint;

use super::{PinnerConfig, chain};
use crate::Result;
use crate::grants::to_current;
use crate::node_config::NodeConfig;
use crate::report::{Operation, Operations};

/// The grants, in memory and on disk.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) checkpoint: PinningCheckpoint,
    saved: Saved,
    /// Committed grants.
    pub(super) committed: Current,
    /// Grants from which the next plan starts: committed or in transition; in observation, those of
    /// the last plan.
    pub(super) planned: Current,
    /// State of the checkpoint at the start, until the first plan.
    pub(super) found: Found,
}

/// The checkpoint on disk.
#[derive(Debug)]
enum Saved {
    /// Neither read nor written, and not due: nothing was granted yet.
    Never,
    /// Read or written. A plan that changes it makes the pass write it again.
    Written(PinningCheckpoint),
    /// Must be written by the next pass, even if that has no steps: a write has failed, or a
    /// container was placed at its creation. `last` is what was read or written last.
    Due { last: Option<PinningCheckpoint> },
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
        let (mut checkpoint, found) = match PinningCheckpoint::of_this_boot(
            &config.node.state_dir,
            &config.node.proc_root,
        ) {
            Ok(Some(checkpoint)) => (checkpoint, Found::Known),
            Ok(None) => (PinningCheckpoint::default(), Found::Missing),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "failed to read the checkpoint; running pods keep the CPUs of their current cpusets"
                );
                (PinningCheckpoint::default(), Found::Damaged)
            }
        };
        checkpoint.relocate(mount);
        Self::of(checkpoint, found)
    }

    /// The record after a start with this checkpoint.
    pub(super) fn of(checkpoint: PinningCheckpoint, found: Found) -> Self {
        let committed = to_current(&checkpoint.committed);
        let planned = checkpoint.intent.as_ref().map_or_else(|| committed.clone(), to_current);
        let saved = match found {
            Found::Known => Saved::Written(checkpoint.clone()),
            Found::Missing | Found::Damaged => Saved::Never,
        };
        Self { checkpoint, saved, committed, planned, found }
    }

    /// Whether the checkpoint on disk has these results of a plan.
    pub(super) fn is_saved(
        &self,
        outcome: &Current,
        best_effort: &BTreeSet<String>,
        rejections: &BTreeMap<String, Rejection>,
    ) -> bool {
        !matches!(self.saved, Saved::Due { .. })
            && *outcome == self.committed
            && *best_effort == self.checkpoint.best_effort
            && *rejections == self.checkpoint.rejections
    }

    /// Whether the checkpoint on disk has the original CPUs of this cgroup.
    pub(super) fn has_saved(&self, path: &Path) -> bool {
        match &self.saved {
            Saved::Written(last) | Saved::Due { last: Some(last) } => {
                last.written.contains_key(path)
            }
            Saved::Never | Saved::Due { last: None } => false,
        }
    }

    /// Writes the checkpoint if it differs from the one on disk.
    pub(super) fn save(
        &mut self,
        config: &NodeConfig,
        mount: &Path,
        operations: &mut Operations,
    ) -> Result<()> {
        self.checkpoint.boot_id = node::boot_id(&config.proc_root);
        if matches!(&self.saved, Saved::Written(last) if *last == self.checkpoint) {
            return Ok(());
        }
        let written = self.write(config, mount);
        operations.add(Operation::Checkpoint, written.is_ok());
        written
    }

    /// Writes the checkpoint. After a failure the next pass writes it.
    pub(super) fn write(&mut self, config: &NodeConfig, mount: &Path) -> Result<()> {
        let written = self.checkpoint.write(&config.state_dir, mount);
        match &written {
            Ok(()) => self.saved = Saved::Written(self.checkpoint.clone()),
            Err(_) => self.make_due(),
        }
        Ok(written?)
    }

    /// Makes the next pass write the checkpoint, even if that pass has no steps.
    pub(super) fn make_due(&mut self) {
        let last = match mem::replace(&mut self.saved, Saved::Never) {
            Saved::Never => None,
            Saved::Written(last) => Some(last),
            Saved::Due { last } => last,
        };
        self.saved = Saved::Due { last };
    }

    /// Clears the record after a drain.
    pub(super) fn clear(&mut self) {
        self.checkpoint = PinningCheckpoint::default();
        self.saved = Saved::Never;
        self.committed = Current::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_dir::WrittenCgroup;

    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(node.0.path().join("state")).unwrap();
            std::fs::write(node.0.path().join("file"), "").unwrap();
            node
        }

        /// With this state directory: `state`, or `file`, which no checkpoint can be written to.
        fn config(&self, state_dir: &str) -> NodeConfig {
            NodeConfig {
                hierarchy: cgroupfs::Hierarchy {
                    version: kernel_text::CgroupVersion::V2,
                    hybrid: false,
                    cpu: "/nowhere".into(),
                    cpuacct: None,
                    cpuset: None,
                    memory: None,
                },
                kubepods: Vec::new(),
                proc_root: "/proc".into(),
                sys_root: "/nowhere".into(),
                state_dir: self.0.path().join(state_dir),
                cpu_manager_state: "/nowhere".into(),
            }
        }

        /// Saves; returns the numbers of writes that succeeded and failed.
        fn save(&self, record: &mut Record, state_dir: &str) -> (u64, u64) {
            let mut operations = Operations::default();
            let saved = record.save(&self.config(state_dir), Path::new("/"), &mut operations);
            let writes = |succeeded| -> u64 {
                let of = |(_, done, times)| (done == succeeded).then_some(times);
                operations.iter().filter_map(of).sum()
            };
            assert_eq!(saved.is_ok(), writes(false) == 0);
            (writes(true), writes(false))
        }
    }

    fn is_saved(record: &Record) -> bool {
        record.is_saved(&Current::default(), &BTreeSet::new(), &BTreeMap::new())
    }

    #[test]
    fn a_checkpoint_is_written_once_and_again_after_it_has_changed() {
        let (node, mut record) =
            (Node::new(), Record::of(PinningCheckpoint::default(), Found::Missing));
        assert!(is_saved(&record), "nothing is granted");
        assert_eq!(node.save(&mut record, "state"), (1, 0));
        assert_eq!(node.save(&mut record, "state"), (0, 0));
        record.checkpoint.arrivals.insert("u".to_owned(), 0);
        assert!(is_saved(&record), "an arrival alone is not written");
        assert_eq!(node.save(&mut record, "state"), (1, 0));
    }

    #[test]
    fn a_write_that_has_failed_is_due_and_the_last_one_stays_known() {
        let (node, mut record) =
            (Node::new(), Record::of(PinningCheckpoint::default(), Found::Missing));
        let written = |record: &mut Record, path: &str| {
            let was = WrittenCgroup { inode: 1, original: String::new() };
            record.checkpoint.written.insert(path.into(), was);
        };
        written(&mut record, "/a");
        assert_eq!(node.save(&mut record, "file"), (0, 1));
        assert!(!is_saved(&record) && !record.has_saved(Path::new("/a")));
        assert_eq!(node.save(&mut record, "state"), (1, 0));
        assert!(is_saved(&record) && record.has_saved(Path::new("/a")));
        written(&mut record, "/b");
        assert_eq!(node.save(&mut record, "file"), (0, 1));
        assert!(!is_saved(&record));
        let known = ["/a", "/b"].map(|path| record.has_saved(Path::new(path)));
        assert_eq!(known, [true, false]);
    }

    #[test]
    fn a_checkpoint_that_is_due_is_written_without_a_change() {
        let (node, mut record) =
            (Node::new(), Record::of(PinningCheckpoint::default(), Found::Missing));
        assert_eq!(node.save(&mut record, "state"), (1, 0));
        record.make_due();
        assert!(!is_saved(&record));
        assert_eq!(node.save(&mut record, "state"), (1, 0));
        assert!(is_saved(&record));
    }
}
