//! Whether cpusets are written, as an enum: each variant has the state that its mode needs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use kernel_text::CpuSet;
use placement::Uid;

use crate::repairs::{Pause, PauseCause, Repairs};
use crate::report::PinningStatus;
use state_dir::Lock;

/// Whether cpusets are written.
#[derive(Debug)]
pub(super) enum Mode {
    /// Plans only. If it enforced before, it still holds the lock, because it must restore what it
    /// wrote.
    Observing { why: Why, lock: Option<Lock> },
    /// Enforces: writes cpusets.
    Enforcing { lock: Lock, granted: Granted },
    /// Pauses on the whole node: grants nothing and narrows nothing, but still gives back released
    /// CPUs. Lasts for `pause`.
    SteppedBack { lock: Lock, granted: Granted, pause: Pause },
}

/// Reason not to write cpusets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// No pass has run yet.
    NotStarted,
    /// Configured to observe (`--pinning=observe`).
    Configured,
    /// Another owner of cpusets, or a node in an unknown state.
    Obstacle(String),
    /// Drained by `cpuwarden drain`; lasts until the agent is restarted.
    Drained,
}

/// State of enforcement.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// Cgroups that matched the plan after the last pass.
    pub(super) established: BTreeMap<PathBuf, Established>,
    /// CPUs of the kubepods root at that time.
    pub(super) ceiling: CpuSet,
    /// Number of passes that a grant has waited for another pod to leave its CPUs, by pod.
    pub(super) waits: BTreeMap<Uid, usize>,
    /// Repairs and failures, and the pods paused because of them.
    pub(super) repairs: Repairs,
}

/// A cgroup that matched the plan after the last pass.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) inode: u64,
    /// Effective CPUs.
    pub(super) cpus: CpuSet,
    /// `cpuset.cpus` before this agent's first write; of an unwritten cgroup, its first value seen.
    pub(super) original: String,
}

impl Default for Mode {
    fn default() -> Self {
        Self::Observing { why: Why::NotStarted, lock: None }
    }
}

impl Mode {
    /// The mode for a pass at `now`, with this obstacle or none.
    pub(super) fn with_obstacle(self, obstacle: Option<Why>, now: Instant) -> Self {
        match (self, obstacle) {
            (drained @ Self::Observing { why: Why::Drained, .. }, _) => drained,
            (Self::Enforcing { lock, .. } | Self::SteppedBack { lock, .. }, Some(why)) => {
                Self::Observing { why, lock: Some(lock) }
            }
            (Self::Observing { lock, .. }, Some(why)) => Self::Observing { why, lock },
            (Self::Observing { lock: Some(lock), .. }, None) => {
                Self::Enforcing { lock, granted: Granted::default() }
            }
            (Self::SteppedBack { lock, granted, pause }, None) if now >= pause.until() => {
                Self::Enforcing { lock, granted }
            }
            // Without the lock, `why` names its holder.
            (unchanged, None) => unchanged,
        }
    }

    /// Whether the lock must be taken before a pass without obstacles.
    pub(super) fn lacks_lock(&self) -> bool {
        matches!(self, Self::Observing { lock: None, why } if *why != Why::Drained)
    }

    /// The lock, if this agent holds it.
    pub(super) fn lock(&mut self) -> Option<&mut Lock> {
        match self {
            Self::Observing { lock, .. } => lock.as_mut(),
            Self::Enforcing { lock, .. } | Self::SteppedBack { lock, .. } => Some(lock),
        }
    }

    /// Whether this agent holds the lock, and so may write.
    pub(super) fn has_lock(&self) -> bool {
        !matches!(self, Self::Observing { lock: None, .. })
    }

    /// State of enforcement, if this agent enforces or is paused.
    pub(super) fn granted(&mut self) -> Option<&mut Granted> {
        match self {
            Self::Enforcing { granted, .. } | Self::SteppedBack { granted, .. } => Some(granted),
            Self::Observing { .. } => None,
        }
    }

    /// Pods that are paused at `now`.
    pub(super) fn paused(&self, now: Instant) -> BTreeMap<Uid, PauseCause> {
        match self {
            Self::Enforcing { granted, .. } => granted.repairs.paused(now),
            Self::Observing { .. } | Self::SteppedBack { .. } => BTreeMap::new(),
        }
    }

    pub(super) fn status(&self) -> PinningStatus {
        match self {
            Self::Enforcing { .. } => PinningStatus::Enforcing,
            Self::Observing { why, .. } => PinningStatus::Observing(why.to_string()),
            Self::SteppedBack { pause, .. } => PinningStatus::Observing(format!("paused: {pause}")),
        }
    }

    /// Enforcement that is suspended, by the labels `scope` and `reason`: number of pods, or 1 for
    /// the node.
    pub(super) fn stepped_back(
        &self,
        now: Instant,
    ) -> BTreeMap<(&'static str, &'static str), usize> {
        let mut counts = BTreeMap::new();
        match self {
            Self::Enforcing { .. } => {
                self.paused(now)
                    .values()
                    .for_each(|cause| *counts.entry(("pod", cause.as_str())).or_default() += 1);
            }
            Self::SteppedBack { pause, .. } => {
                counts.insert(("node", pause.cause.as_str()), 1);
            }
            Self::Observing { why: Why::Configured, .. } => {}
            Self::Observing { why: Why::Drained, .. } => {
                counts.insert(("node", "drained"), 1);
            }
            Self::Observing { .. } => {
                counts.insert(("node", "obstacle"), 1);
            }
        }
        counts
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => out.write_str("no pass has completed yet"),
            Self::Configured => out.write_str("--pinning=observe"),
            Self::Obstacle(what) => out.write_str(what),
            Self::Drained => out.write_str("drained by an operator; restart the agent to resume"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::take_lock;

    fn obstacle() -> Option<Why> {
        Some(Why::Obstacle("koordlet".to_owned()))
    }

    fn enforcing(directory: &tempfile::TempDir) -> Mode {
        Mode::Enforcing { lock: take_lock(directory.path()).unwrap(), granted: Granted::default() }
    }

    /// The mode while the node is paused because of most of its pods.
    fn stepped_back(directory: &tempfile::TempDir, now: Instant) -> Mode {
        let Mode::Enforcing { lock, mut granted } = enforcing(directory) else {
            panic!("it enforces")
        };
        let pods: Vec<Uid> = ["a", "b"].map(Uid::from).into();
        for uid in &pods {
            (0..6).for_each(|_| granted.repairs.failed(uid, now));
        }
        let pause = granted.repairs.judge(&pods.iter().collect::<BTreeSet<_>>(), now).node.unwrap();
        Mode::SteppedBack { lock, granted, pause }
    }

    #[test]
    fn an_obstacle_stops_writes_and_its_end_resumes_them() {
        let (directory, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let observing = enforcing(&directory).with_obstacle(obstacle(), now);
        assert_eq!(observing.status(), PinningStatus::Observing("koordlet".to_owned()));
        assert_eq!(observing.stepped_back(now), [(("node", "obstacle"), 1)].into());
        assert!(observing.has_lock(), "what it wrote is its own to give back");
        assert_eq!(observing.with_obstacle(None, now).status(), PinningStatus::Enforcing);
    }

    #[test]
    fn stepping_back_ends_after_its_pause_and_not_before() {
        let (directory, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let mode = stepped_back(&directory, now);
        assert_eq!(mode.stepped_back(now), [(("node", "write_failed"), 1)].into());
        let mode = mode.with_obstacle(None, now + Duration::from_secs(59));
        assert!(
            matches!(mode.status(), PinningStatus::Observing(why) if why.contains("next attempt in 1 min"))
        );
        assert_eq!(
            mode.with_obstacle(None, now + Duration::from_secs(60)).status(),
            PinningStatus::Enforcing
        );
    }

    #[test]
    fn no_writes_without_the_lock_or_after_a_drain() {
        let now = Instant::now();
        assert!(Mode::default().lacks_lock());
        assert_ne!(Mode::default().with_obstacle(None, now).status(), PinningStatus::Enforcing);
        let drained = Mode::Observing { why: Why::Drained, lock: None }
            .with_obstacle(None, now)
            .with_obstacle(obstacle(), now);
        assert!(!drained.lacks_lock() && !drained.has_lock());
        assert_eq!(drained.stepped_back(now), [(("node", "drained"), 1)].into());
    }
}
