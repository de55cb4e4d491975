//! The recorded stage: a real node's files in a temporary directory. The counters advance from the
//! first to the second reading and beyond. See `recorded/README.md` for their origin.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cgroupfs::control;
use flate2::read::GzDecoder;
use tempfile::TempDir;

use crate::stage::Paths;

/// Name of the recorded node.
pub(super) const NODE: &str = "rig-guest";
const ARCHIVE: &[u8] = include_bytes!("recorded/node.tar.gz");
/// Names of files with counters; all other files keep their first reading.
const COUNTERS: [&str; 2] = ["cpu.stat", "cpu.pressure"];

/// An unpacked recording of a node.
pub(super) struct Replay {
    directory: TempDir,
    counters: Vec<CounterFile>,
    /// Time between the two readings, seconds.
    span: f64,
}

/// A file with counters, with its two readings.
struct CounterFile {
    path: PathBuf,
    first: String,
    second: String,
}

impl Replay {
    /// Unpacks the recording.
    ///
    /// # Errors
    /// No temporary directory is available.
    pub(super) fn unpack() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("cpuwarden-demo-").tempdir();
        let directory = directory.context("no directory for the recorded node")?;
        tar::Archive::new(GzDecoder::new(ARCHIVE))
            .unpack(directory.path())
            .context("cannot unpack the recorded node")?;
        let (first, second) =
            (directory.path().join("node/cgroup-t0"), directory.path().join("node/cgroup-t1"));
        let mut counters = Vec::new();
        find_counters(&first, &second, &mut counters)?;
        let span = uptime(&second)? - uptime(&first)?;
        Ok(Self { directory, counters, span })
    }

    /// One-line description of the stage.
    pub(super) fn headline(&self) -> String {
        let release =
            fs::read_to_string(self.path("proc/sys/kernel/osrelease")).unwrap_or_default();
        format!("cpuwarden demo: replay of a recorded node, Linux {}, cgroup v2", release.trim())
    }

    /// The kubelet's response to `/pods` at that time.
    pub(super) fn pod_list(&self) -> Vec<u8> {
        fs::read(self.path("pods.json")).unwrap_or_default()
    }

    /// Directories of the recorded node.
    pub(super) fn paths(&self) -> Paths {
        Paths {
            cgroup_root: Some(self.path("cgroup-t0")),
            proc_root: Some(self.path("proc")),
            sys_root: Some(self.path("sys")),
            kubepods: None,
        }
    }

    /// Sets all counters to their values at this many seconds after the first reading.
    pub(super) fn advance(&self, seconds: u64) {
        let share = seconds as f64 / self.span;
        for file in &self.counters {
            // A single write over the old text, which is never longer: a reader sees either the old
            // or the new text.
            if let Err(error) =
                control::write(&file.path, &between(&file.first, &file.second, share))
            {
                tracing::warn!(%error, "the replay has stopped");
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("node").join(name)
    }
}

fn find_counters(first: &Path, second: &Path, into: &mut Vec<CounterFile>) -> anyhow::Result<()> {
    for name in COUNTERS {
        let path = first.join(name);
        // A cgroup without a second reading keeps its first one.
        if let (Ok(first), Ok(second)) =
            (fs::read_to_string(&path), fs::read_to_string(second.join(name)))
        {
            into.push(CounterFile { path, first, second });
        }
    }
    for child in cgroupfs::subdirectories(first)? {
        find_counters(&first.join(&child.name), &second.join(&child.name), into)?;
    }
    Ok(())
}

fn uptime(reading: &Path) -> anyhow::Result<f64> {
    let path = reading.join("TIME.uptime");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.trim().parse().with_context(|| format!("no timestamp in {}", path.display()))
}

/// The first text with each integer moved toward that of the second by `share`, which may exceed 1.
fn between(first: &str, second: &str, share: f64) -> String {
    let mut text = String::with_capacity(first.len() + 16);
    let mut others = second.split_inclusive([' ', '\n', '=']);
    for token in first.split_inclusive([' ', '\n', '=']) {
        let number = token.trim_end();
        let other = others.next().unwrap_or_default().trim_end();
        match (number.parse::<u64>(), other.parse::<u64>()) {
            (Ok(from), Ok(to)) if to >= from => {
                let moved = from + ((to - from) as f64 * share) as u64;
                text += &moved.to_string();
                text += &token[number.len()..];
            }
            _ => text += token,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_move_and_everything_else_stands() {
        let first = "some avg10=57.29 total=100\nnr_periods 10\nnr_throttled 7\n";
        let second = "some avg10=80.00 total=300\nnr_periods 50\nnr_throttled 6\n";
        assert_eq!(between(first, second, 0.0), first);
        let half = "some avg10=57.29 total=200\nnr_periods 30\nnr_throttled 7\n";
        assert_eq!(between(first, second, 0.5), half);
        let twice = "some avg10=57.29 total=500\nnr_periods 90\nnr_throttled 7\n";
        assert_eq!(between(first, second, 2.0), twice);
    }

    #[test]
    fn the_archive_has_a_node_with_two_readings() {
        let replay = Replay::unpack().unwrap();
        assert!(
            replay.span > 10.0 && replay.counters.len() > 20,
            "{} s, {}",
            replay.span,
            replay.counters.len()
        );
        assert!(
            replay.headline().ends_with("Linux 6.1.0-56-cloud-amd64, cgroup v2"),
            "{}",
            replay.headline()
        );
        assert!(replay.pod_list().starts_with(b"{"));
        let file = replay.counters.iter().find(|file| file.first != file.second).unwrap();
        replay.advance(1);
        assert_ne!(fs::read_to_string(&file.path).unwrap(), file.first);
    }
}
