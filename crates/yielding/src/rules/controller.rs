//! Decides how far best-effort pods yield.
//!
//! The trigger is harm: the share of its time that a latency-sensitive pod waits for best-effort
//! pods. While harm lasts, the controller takes one step after the other. After some time without
//! harm it undoes the steps, more slowly. Without a trace it follows koordlet's budget.

use std::time::Duration;

use super::budget::{GROWTH, grown_cpus, grown_quota_usec};
use super::harm::{HARM_THRESHOLD, Harm, Harms};

/// How far best-effort pods yield. Each step includes the ones before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Best-effort pods are not restricted.
    #[default]
    None,
    /// `cpu.idle` is set on best-effort pods.
    Idle,
    /// Best-effort pods have fewer CPUs.
    FewerCpus,
    /// Best-effort pods have a quota.
    Quota,
}

impl Step {
    /// Number of the step, 0 to 3, as in metrics.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// Restriction of best-effort pods.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Target {
    /// Whether `cpu.idle` is set.
    pub idle: bool,
    /// Number of CPUs that best-effort pods keep; `None` for all.
    pub cpus: Option<usize>,
    /// Quota of all best-effort pods together, cores; `None` for no quota.
    pub quota_cores: Option<f64>,
}

impl Target {
    /// The last step that the target includes.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Self { quota_cores: Some(_), .. } => Step::Quota,
            Self { cpus: Some(_), .. } => Step::FewerCpus,
            Self { idle: true, .. } => Step::Idle,
            _ => Step::None,
        }
    }
}

/// Settings of the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ControllerSettings {
    /// Harm at or above this share is too much.
    pub harm_above: f64,
    /// Harm below this share is none.
    pub harm_below: f64,
    /// Time for which harm must last before each further step.
    pub tighten_after: Duration,
    /// Time without harm before the first step is undone.
    pub loosen_after: Duration,
    /// Time without any signal after which all steps are undone.
    pub signal_timeout: Duration,
    /// Minimum number of CPUs for best-effort pods; less than 2 counts as 2.
    pub floor_cpus: usize,
    /// Minimum quota of all best-effort pods together, cores.
    pub floor_cores: f64,
    /// Whether the kernel has `cpu.idle`.
    pub can_idle: bool,
    /// Whether cpusets of best-effort pods may be written.
    pub can_move: bool,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            harm_above: HARM_THRESHOLD,
            harm_below: 0.01,
            tighten_after: Duration::from_secs(3),
            loosen_after: Duration::from_secs(30),
            // Longer than the rarest cycle of a trace in bursts, one minute.
            signal_timeout: Duration::from_secs(180),
            floor_cpus: 2,
            floor_cores: 0.1,
            can_idle: true,
            can_move: true,
        }
    }
}

/// Measurement of one tick.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// Harm that best-effort pods did to latency-sensitive pods.
    Waits(Harms),
    /// Budget of best-effort pods, cores, from the node's utilization: the fallback.
    Utilization(f64),
    /// Nothing was measured.
    Missing,
}

/// Reason of a transition.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// A latency-sensitive pod waits for best-effort pods.
    Harm(Harm),
    /// No harm for this long.
    NoHarm(Duration),
    /// The utilization rule allows best-effort pods this many cores.
    Utilization(f64),
    /// Nothing was measured for this long.
    SignalLost(Duration),
    /// The number of CPUs of the node changed.
    Hotplug,
}

impl Reason {
    /// Label value in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Harm(_) => "harm",
            Self::NoHarm(_) => "no_harm",
            Self::Utilization(_) => "utilization",
            Self::SignalLost(_) => "signal_lost",
            Self::Hotplug => "hotplug",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Harm(harm) => write!(
                f,
                "{} waits for best-effort pods {:.1} % of its time",
                harm.victim,
                harm.lost * 100.0
            ),
            Self::NoHarm(time) => write!(f, "no harm for {} s", time.as_secs()),
            Self::Utilization(cores) => {
                write!(f, "the utilization rule allows best-effort pods {cores:.2} cores")
            }
            Self::SignalLost(time) => write!(f, "no measurement for {} s", time.as_secs()),
            Self::Hotplug => f.write_str("the number of CPUs changed"),
        }
    }
}

/// A change of the target.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Target before.
    pub from: Target,
    /// Target from now on.
    pub to: Target,
    /// Reason of the change.
    pub reason: Reason,
}

/// Maximum factor by which relapses lengthen [`ControllerSettings::loosen_after`].
const MAX_LOOSEN_FACTOR: u32 = 16;

/// A quota helps if the harm falls to this part or below.
const HELPS_BELOW: f64 = 0.9;

/// Number of quotas in a row that do not help, after which the quota stays. The first one may leave
/// more than best-effort pods use.
const MOST_USELESS: u32 = 2;

/// Period of the quotas, microseconds.
const PERIOD_USEC: u64 = 100_000;

/// The state machine. Times are offsets from any fixed moment and must not decrease.
#[derive(Debug, Clone)]
pub struct Controller {
    settings: ControllerSettings,
    target: Target,
    /// Since when harm has lasted without a step against it.
    harmed_since: Option<Duration>,
    /// Since when there has been no harm.
    unharmed_since: Option<Duration>,
    /// Last time of a signal; `None` before the first tick.
    signal_at: Option<Duration>,
    /// Time of the last loosening, to recognize a relapse.
    loosened_at: Option<Duration>,
    /// Factor of `loosen_after`: doubled by each relapse, so that the target does not oscillate.
    loosen_factor: u32,
    halvings: Halvings,
}

/// Effect of quotas on the harm, while it lasts.
#[derive(Debug, Clone, Copy, Default)]
struct Halvings {
    /// Lowest harm before a quota.
    lowest: Option<f64>,
    /// Number of quotas since then that did not help.
    useless: u32,
}

impl Halvings {
    /// Records the harm before a quota is set or reduced. Returns whether that may help.
    fn may_help(&mut self, lost: f64) -> bool {
        match self.lowest {
            Some(lowest) if lost > lowest * HELPS_BELOW => self.useless += 1,
            _ => *self = Self { lowest: Some(lost), useless: 0 },
        }
        self.useless < MOST_USELESS
    }
}

impl Controller {
    /// Creates a controller without restrictions.
    #[must_use]
    pub fn new(settings: ControllerSettings) -> Self {
        Self {
            settings: ControllerSettings { floor_cpus: settings.floor_cpus.max(2), ..settings },
            target: Target::default(),
            harmed_since: None,
            unharmed_since: None,
            signal_at: None,
            loosened_at: None,
            loosen_factor: 1,
            halvings: Halvings::default(),
        }
    }

    /// The current target.
    #[must_use]
    pub const fn target(&self) -> Target {
        self.target
    }

    /// Minimum number of CPUs for best-effort pods.
    #[must_use]
    pub const fn floor_cpus(&self) -> usize {
        self.settings.floor_cpus
    }

    /// Takes one measurement at `now` on a node with `node_cpus` CPUs for best-effort pods. Returns
    /// the change of the target, if any.
    pub fn tick(&mut self, now: Duration, signal: Signal, node_cpus: usize) -> Option<Transition> {
        if let Some(cpus) = self.target.cpus
            && cpus > node_cpus
        {
            let target = Target { cpus: Some(node_cpus), ..self.target };
            return self.change(target, Reason::Hotplug);
        }
        match signal {
            Signal::Waits(harms) => {
                self.signal_at = Some(now);
                self.follow_waits(now, harms, node_cpus)
            }
            Signal::Utilization(budget) => {
                self.signal_at = Some(now);
                (self.harmed_since, self.unharmed_since) = (None, None);
                self.follow_budget(budget, node_cpus)
            }
            // One tick without a new measurement decides nothing: the times continue.
            Signal::Missing => {
                let silent = now.saturating_sub(*self.signal_at.get_or_insert(now));
                if silent < self.settings.signal_timeout {
                    return None;
                }
                (self.harmed_since, self.unharmed_since) = (None, None);
                self.change(Target::default(), Reason::SignalLost(silent))
            }
        }
    }

    /// Follows all waits for `cpu.idle`, which takes no CPU from best-effort pods while others need
    /// none, and the waits up to the victims' requests for the steps after it.
    fn follow_waits(
        &mut self,
        now: Duration,
        Harms { worst, weighed }: Harms,
        node_cpus: usize,
    ) -> Option<Transition> {
        let harm = if self.target.step() > Step::Idle { &weighed } else { &worst };
        if harm.lost >= self.settings.harm_above {
            self.unharmed_since = None;
            let since = *self.harmed_since.get_or_insert(now);
            if now.saturating_sub(since) < self.settings.tighten_after {
                return None;
            }
            self.harmed_since = Some(now);
            let target = self.tightened(node_cpus);
            let harm = if target.step() > Step::Idle { weighed } else { worst };
            if harm.lost < self.settings.harm_above {
                return None;
            }
            self.note_relapse(now);
            if target.quota_cores.is_some() && !self.halvings.may_help(harm.lost) {
                return None;
            }
            return self.change(target, Reason::Harm(harm));
        }
        (self.harmed_since, self.halvings) = (None, Halvings::default());
        if harm.lost >= self.settings.harm_below {
            self.unharmed_since = None;
            return None;
        }
        let since = *self.unharmed_since.get_or_insert(now);
        let unharmed = now.saturating_sub(since);
        if unharmed < self.settings.loosen_after * self.loosen_factor {
            return None;
        }
        self.loosen(now, unharmed, node_cpus)
    }

    /// Doubles the factor if harm returned soon after a restriction was loosened.
    fn note_relapse(&mut self, now: Duration) {
        let soon = self.settings.loosen_after * self.loosen_factor;
        let Some(loosened) = self.loosened_at.take() else { return };
        self.loosen_factor = match now.saturating_sub(loosened) <= soon {
            true => (self.loosen_factor * 2).min(MAX_LOOSEN_FACTOR),
            false => 1,
        };
    }

    /// Loosens the last step by one notch. A further notch of the same step follows after
    /// `tighten_after`, another step only after the whole time again.
    fn loosen(
        &mut self,
        now: Duration,
        unharmed: Duration,
        node_cpus: usize,
    ) -> Option<Transition> {
        if self.target == Target::default() {
            return None;
        }
        let target = self.loosened(node_cpus);
        let restart = self.settings.loosen_after * self.loosen_factor;
        self.unharmed_since = Some(match target.step() == self.target.step() {
            true => now.saturating_sub(restart.saturating_sub(self.settings.tighten_after)),
            false => now,
        });
        self.loosened_at = Some(now);
        self.change(target, Reason::NoHarm(unharmed))
    }

    fn loosened(&self, node_cpus: usize) -> Target {
        let mut target = self.target;
        if let Some(cores) = target.quota_cores {
            let cpus = target.cpus.unwrap_or(node_cpus) as f64;
            let grown = cores + node_cpus as f64 * GROWTH;
            target.quota_cores = (grown < cpus).then_some(grown);
        } else if let Some(cpus) = target.cpus {
            let grown = cpus + ((node_cpus as f64) * GROWTH).ceil() as usize;
            target.cpus = (grown < node_cpus).then_some(grown);
        } else {
            target.idle = false;
        }
        target
    }

    /// The target after one more step; the same if everything is at its floor.
    fn tightened(&self, node_cpus: usize) -> Target {
        let ControllerSettings { floor_cpus, floor_cores, can_idle, can_move, .. } = self.settings;
        let mut target = self.target;
        if can_idle && !target.idle {
            target.idle = true;
            return target;
        }
        let cpus = target.cpus.unwrap_or(node_cpus);
        if can_move && cpus > floor_cpus && target.quota_cores.is_none() {
            target.cpus = Some((cpus / 2).max(floor_cpus));
            return target;
        }
        let cores = target.quota_cores.unwrap_or(cpus as f64);
        if cores > floor_cores {
            target.quota_cores = Some((cores / 2.0).max(floor_cores));
        }
        target
    }

    /// koordlet's rule: fewer CPUs. Where the floor leaves more CPUs than the budget, also a quota,
    /// koordlet's other policy. CPUs grow only without a quota: both together would grow twice.
    fn follow_budget(&mut self, budget: f64, node_cpus: usize) -> Option<Transition> {
        let current = self.target.cpus.unwrap_or(node_cpus);
        let mut cpus = grown_cpus(budget, current, node_cpus, self.settings.floor_cpus);
        if self.target.quota_cores.is_some() {
            cpus = cpus.min(current);
        }
        let cpus = (self.settings.can_move && cpus < node_cpus).then_some(cpus);
        let quota_cores = self.budget_quota(budget, cpus.unwrap_or(node_cpus), node_cpus);
        let target = Target { cpus, quota_cores, idle: false };
        self.change(target, Reason::Utilization(budget))
    }

    /// Quota for a budget of less than the CPUs that best-effort pods keep at least. One in force
    /// ends when it has grown to the CPUs.
    fn budget_quota(&self, budget: f64, cpus: usize, node_cpus: usize) -> Option<f64> {
        let current = self.target.quota_cores;
        let is_at_floor = !self.settings.can_move || cpus <= self.settings.floor_cpus;
        if is_at_floor && budget < cpus as f64 {
            let per_core = PERIOD_USEC as f64;
            let usec = current.map(|cores| (cores * per_core).round() as u64);
            let quota = grown_quota_usec(budget, usec, node_cpus as f64, PERIOD_USEC).or(usec)?;
            return Some((quota as f64 / per_core).max(self.settings.floor_cores));
        }
        let grown = current? + node_cpus as f64 * GROWTH;
        (grown < cpus as f64).then_some(grown)
    }

    fn change(&mut self, target: Target, reason: Reason) -> Option<Transition> {
        if target == self.target {
            return None;
        }
        let from = std::mem::replace(&mut self.target, target);
        Some(Transition { from, to: target, reason })
    }
}
