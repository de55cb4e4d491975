//! Whether cpusets are written, as an enum: each variant has the state that its mode needs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use std::{fmt, mem};

use kernel_text::CpuSet;
use placement::Uid;
use state_dir::Lock;
use watchdog::errors::chain;

use crate::repairs::{CausedPause, PauseCause, Repairs};
use crate::report::PinningStatus;

/// Whether cpusets are written.
#[derive(Debug)]
pub(super) enum PinnerMode {
    /// Plans only, and does not hold the lock.
    Observing(Why),
    /// Plans only since an obstacle has ended enforcement. Still holds the lock, because it must
    /// restore what it wrote.
    Suspended { lock: Lock, why: Why },
    /// Enforces: writes cpusets.
    Enforcing { lock: Lock, granted: Granted },
    /// Pauses on the whole node: grants nothing and narrows nothing, but still gives back released
    /// CPUs. Lasts for `pause`.
    SteppedBack { lock: Lock, granted: Granted, pause: CausedPause },
    /// Plans only, after `cpuwarden drain`; lasts until the agent is restarted.
    Drained,
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

impl Default for PinnerMode {
    fn default() -> Self {
        Self::Observing(Why::NotStarted)
    }
}

impl PinnerMode {
    /// Changes to the mode of a pass at `now`, with this obstacle or none. Calls `take_lock` if only
    /// the lock is missing.
    pub(super) fn update(
        &mut self,
        obstacle: Option<Why>,
        now: Instant,
        take_lock: impl FnOnce() -> state_dir::Result<Lock>,
    ) {
        *self = match (mem::take(self), obstacle) {
            (Self::Drained, _) => Self::Drained,
            (Self::Observing(_), Some(why)) => Self::Observing(why),
            (Self::Observing(_), None) => match take_lock() {
                Ok(lock) => Self::enforcing(lock),
                Err(error) => Self::Observing(Why::Obstacle(chain(&error))),
            },
            (
                Self::Suspended { lock, .. }
                | Self::Enforcing { lock, .. }
                | Self::SteppedBack { lock, .. },
                Some(why),
            ) => Self::Suspended { lock, why },
            (Self::Suspended { lock, .. }, None) => Self::enforcing(lock),
            (Self::SteppedBack { lock, granted, pause }, None) if !pause.pause.lasts(now) => {
                Self::Enforcing { lock, granted }
            }
            (unchanged @ (Self::Enforcing { .. } | Self::SteppedBack { .. }), None) => unchanged,
        };
    }

    fn enforcing(lock: Lock) -> Self {
        Self::Enforcing { lock, granted: Granted::default() }
    }

    /// Pauses enforcement on the whole node.
    pub(super) fn step_back(&mut self, pause: CausedPause) {
        *self = match mem::take(self) {
            Self::Enforcing { lock, granted } => Self::SteppedBack { lock, granted, pause },
            unchanged => unchanged,
        };
    }

    /// The lock, if this agent holds it.
    pub(super) fn lock(&mut self) -> Option<&mut Lock> {
        match self {
            Self::Suspended { lock, .. }
            | Self::Enforcing { lock, .. }
            | Self::SteppedBack { lock, .. } => Some(lock),
            Self::Observing(_) | Self::Drained => None,
        }
    }

    /// Whether this agent holds the lock, and so may write.
    pub(super) fn has_lock(&self) -> bool {
        !matches!(self, Self::Observing(_) | Self::Drained)
    }

    /// State of enforcement, if this agent enforces or is paused.
    pub(super) fn granted(&self) -> Option<&Granted> {
        match self {
            Self::Enforcing { granted, .. } | Self::SteppedBack { granted, .. } => Some(granted),
            Self::Observing(_) | Self::Suspended { .. } | Self::Drained => None,
        }
    }

    /// As [`PinnerMode::granted`], to change it.
    pub(super) fn granted_mut(&mut self) -> Option<&mut Granted> {
        match self {
            Self::Enforcing { granted, .. } | Self::SteppedBack { granted, .. } => Some(granted),
            Self::Observing(_) | Self::Suspended { .. } | Self::Drained => None,
        }
    }

    /// Pods that are paused at `now`; none while the whole node is.
    pub(super) fn paused(&self, now: Instant) -> BTreeMap<Uid, PauseCause> {
        match self {
            Self::Enforcing { granted, .. } => granted.repairs.paused(now),
            Self::Observing(_)
            | Self::Suspended { .. }
            | Self::SteppedBack { .. }
            | Self::Drained => BTreeMap::new(),
        }
    }

    pub(super) fn status(&self) -> PinningStatus {
        let observing = PinningStatus::Observing;
        match self {
            Self::Enforcing { .. } => PinningStatus::Enforcing,
            Self::Observing(why) | Self::Suspended { why, .. } => observing(why.to_string()),
            Self::SteppedBack { pause, .. } => observing(format!("paused: {pause}")),
            Self::Drained => {
                observing("drained by an operator; restart the agent to resume".to_owned())
            }
        }
    }

    /// Enforcement that is suspended after a pass with this status, by the labels `scope` and
    /// `reason`: number of pods, or 1 for the node.
    pub(super) fn stepped_back(
        &self,
        status: &PinningStatus,
        now: Instant,
    ) -> BTreeMap<(&'static str, &'static str), usize> {
        let node = |reason| BTreeMap::from([(("node", reason), 1)]);
        match self {
            Self::Observing(Why::Configured) => BTreeMap::new(),
            Self::Observing(Why::NotStarted) => node("pass_failed"),
            Self::Observing(Why::Obstacle(_)) | Self::Suspended { .. } => node("obstacle"),
            Self::Enforcing { .. } => {
                let mut pods = BTreeMap::new();
                for cause in self.paused(now).values() {
                    *pods.entry(("pod", cause.as_str())).or_default() += 1;
                }
                let has_failed = *status != PinningStatus::Enforcing;
                if has_failed && pods.is_empty() { node("pass_failed") } else { pods }
            }
            Self::SteppedBack { pause, .. } => node(pause.cause.as_str()),
            Self::Drained => node("drained"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => out.write_str("no pass has completed yet"),
            Self::Configured => out.write_str("--pinning=observe"),
            Self::Obstacle(what) => out.write_str(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use state_dir::Writer;
    use tempfile::TempDir;

    use super::*;

    /// Maker of a mode, from a directory for its lock and the time at which its pause began.
    type Make = fn(&TempDir, Instant) -> PinnerMode;

    /// A mode with its reason, and whether it holds the lock.
    type Shown = (&'static str, bool);
    /// Values of the labels `scope` and `reason`.
    type Labels = (&'static str, &'static str);

    fn not_started(_: &TempDir, _: Instant) -> PinnerMode {
        PinnerMode::default()
    }

    fn configured(_: &TempDir, _: Instant) -> PinnerMode {
        PinnerMode::Observing(Why::Configured)
    }

    fn observing(_: &TempDir, _: Instant) -> PinnerMode {
        PinnerMode::Observing(obstacle("static"))
    }

    fn take_lock(place: &TempDir) -> state_dir::Result<Lock> {
        Lock::take(place.path(), Writer::Pinning)
    }

    fn suspended(place: &TempDir, _: Instant) -> PinnerMode {
        PinnerMode::Suspended { lock: take_lock(place).unwrap(), why: obstacle("static") }
    }

    fn enforcing(place: &TempDir, _: Instant) -> PinnerMode {
        PinnerMode::enforcing(take_lock(place).unwrap())
    }

    /// Paused for a minute because of most of its pods.
    fn stepped_back(place: &TempDir, now: Instant) -> PinnerMode {
        let mut mode = enforcing(place, now);
        let pods: Vec<Uid> = ["a", "b"].map(Uid::from).into();
        let repairs = &mut mode.granted_mut().unwrap().repairs;
        for uid in &pods {
            (0..6).for_each(|_| repairs.failed(uid, now));
        }
        let namespaces = pods.iter().map(|uid| (uid, &**uid)).collect();
        let pause = repairs.judge(&namespaces, now).node.unwrap();
        mode.step_back(pause);
        mode
    }

    fn drained(_: &TempDir, _: Instant) -> PinnerMode {
        PinnerMode::Drained
    }

    fn obstacle(what: &str) -> Why {
        Why::Obstacle(what.to_owned())
    }

    fn show(mode: &PinnerMode) -> (String, bool) {
        let name = match mode {
            PinnerMode::Observing(why) => format!("observing: {why}"),
            PinnerMode::Suspended { why, .. } => format!("suspended: {why}"),
            PinnerMode::Enforcing { .. } => "enforcing".to_owned(),
            PinnerMode::SteppedBack { .. } => "stepped back".to_owned(),
            PinnerMode::Drained => "drained".to_owned(),
        };
        (name, mode.has_lock())
    }

    /// The mode `seconds` later, after a pass with this obstacle or none.
    fn after(make: Make, obstacle: Option<Why>, seconds: u64) -> (String, bool) {
        let (place, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let mut mode = make(&place, now);
        mode.update(obstacle, now + Duration::from_secs(seconds), || take_lock(&place));
        show(&mode)
    }

    #[test]
    fn an_obstacle_ends_enforcement_and_its_end_resumes_it() {
        let enforces = ("enforcing", true);
        let table: [(Make, Shown, Shown); 7] = [
            // Before, with an obstacle, without one.
            (not_started, ("observing: koordlet", false), enforces),
            (configured, ("observing: koordlet", false), enforces),
            (observing, ("observing: koordlet", false), enforces),
            (suspended, ("suspended: koordlet", true), enforces),
            (enforcing, ("suspended: koordlet", true), enforces),
            (stepped_back, ("suspended: koordlet", true), ("stepped back", true)),
            (drained, ("drained", false), ("drained", false)),
        ];
        for (row, (make, obstructed, free)) in table.into_iter().enumerate() {
            let to_text = |(name, has_lock): Shown| (name.to_owned(), has_lock);
            let with_obstacle = after(make, Some(obstacle("koordlet")), 0);
            assert_eq!(with_obstacle, to_text(obstructed), "row {row}");
            assert_eq!(after(make, None, 0), to_text(free), "row {row}");
        }
    }

    #[test]
    fn stepping_back_ends_after_its_pause_and_not_before() {
        assert_eq!(after(stepped_back, None, 59).0, "stepped back");
        assert_eq!(after(stepped_back, None, 60).0, "enforcing");
    }

    #[test]
    fn a_lock_held_by_another_agent_is_an_obstacle() {
        let mut mode = PinnerMode::default();
        mode.update(None, Instant::now(), || Err(state_dir::Error::Locked("/state/lock".into())));
        let (name, has_lock) = show(&mode);
        assert!(name.contains("observing: another cpuwarden has locked /state/lock"), "{name}");
        assert!(!has_lock);
    }

    #[test]
    fn each_mode_has_its_status_and_its_labels() {
        let table: [(Make, &str, &[Labels]); 7] = [
            (not_started, "observing: no pass has completed yet", &[("node", "pass_failed")]),
            (configured, "observing: --pinning=observe", &[]),
            (observing, "observing: static", &[("node", "obstacle")]),
            (suspended, "observing: static", &[("node", "obstacle")]),
            (enforcing, "enforcing", &[]),
            (
                stepped_back,
                "observing: paused: failed to write the cpusets; next attempt in 1 min",
                &[("node", "write_failed")],
            ),
            (
                drained,
                "observing: drained by an operator; restart the agent to resume",
                &[("node", "drained")],
            ),
        ];
        for (make, status, labels) in table {
            let (place, now) = (tempfile::tempdir().unwrap(), Instant::now());
            let mode = make(&place, now);
            assert_eq!(mode.status().to_string(), status);
            let counts: Vec<_> = mode.stepped_back(&mode.status(), now).into_iter().collect();
            let expected: Vec<_> = labels.iter().map(|&labels| (labels, 1)).collect();
            assert_eq!(counts, expected, "{status}");
        }
    }

    #[test]
    fn a_failed_pass_is_reported_unless_a_label_explains_it() {
        let (place, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let failed = PinningStatus::Observing("no space left on device".to_owned());
        let mut mode = enforcing(&place, now);
        assert_eq!(mode.stepped_back(&failed, now), [(("node", "pass_failed"), 1)].into());
        let (uid, other) = (Uid::from("a"), Uid::from("b"));
        let repairs = &mut mode.granted_mut().unwrap().repairs;
        (0..6).for_each(|_| repairs.failed(&uid, now));
        repairs.judge(&[(&uid, "n"), (&other, "m")].into(), now);
        assert_eq!(mode.stepped_back(&failed, now), [(("pod", "write_failed"), 1)].into());
        assert_eq!(configured(&place, now).stepped_back(&failed, now), BTreeMap::new());
    }
}
