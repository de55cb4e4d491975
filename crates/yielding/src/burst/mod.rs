//! CPU limits that burst: which containers, how much, and the values that this needs.

mod member;
mod values;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::rules::{BurstLimits, BurstPolicy, Candidate, Ineligible, PodBurst, eligible};
use analysis::BurstForecast;
use api::OBJECTIVE;
use cgroupfs::Hierarchy;
use snapshot::ContainerRow;
use state_dir::Setting;

use crate::config::{ActorConfig, BurstSettings};
use crate::inputs::Inputs;
use crate::mode::{Mode, Why};
use crate::pods::is_best_effort;
use crate::setting::is_available;
use crate::writer::{RequiredValues, Writes};

use member::Member;
use values::Values;

/// Whether the kernel has CPU burst (Linux 5.14).
#[must_use]
pub fn has_burst(hierarchy: &Hierarchy) -> bool {
    is_available(Setting::Burst, hierarchy)
}

/// A container that bursts, or would burst.
#[derive(Debug, Clone, PartialEq)]
pub struct Bursting {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// UID of the pod.
    pub uid: String,
    /// Burst, percent of the quota.
    pub percent: u64,
    /// Burst, microseconds; 0 while its quota cannot be read.
    pub usec: u64,
}

/// Change of a container's burst.
#[derive(Debug, Clone, PartialEq)]
pub enum BurstChange {
    /// First or larger burst, with the replayed shares of throttled periods without and with it.
    Raised {
        /// Share without burst.
        without: f64,
        /// Share with this burst.
        with: f64,
    },
    /// End of the burst, with its reason.
    Ended(Ineligible),
    /// The annotation requests a quota above the limit, which is not offered: reported once.
    Rejected,
}

impl BurstChange {
    /// Label values in metrics: the action and its reason.
    #[must_use]
    pub const fn names(&self) -> [&'static str; 2] {
        match self {
            Self::Raised { .. } => ["raise", "throttled"],
            Self::Ended(reason) => ["end", reason.name()],
            Self::Rejected => ["reject", Ineligible::NotOffered.name()],
        }
    }
}

/// Result of one pass for burst.
#[derive(Debug)]
pub struct BurstReport {
    /// Whether bursts are written.
    pub mode: Mode,
    /// Containers that burst, or would burst.
    pub containers: Vec<Bursting>,
    /// Number of containers without burst, by reason.
    pub others: BTreeMap<Ineligible, usize>,
    /// Changes in this pass, with the container before an end and after a raise.
    pub changes: Vec<(Bursting, BurstChange)>,
    /// The writes.
    pub writes: Writes,
}

/// The decisions about burst.
#[derive(Debug)]
pub(crate) struct Bursts {
    settings: BurstSettings,
    /// Containers with burst, by the runtime's id.
    in_force: HashMap<String, Bursting>,
    /// Containers with a rejected request, by the runtime's id.
    rejected: HashSet<String>,
    /// UIDs of the pods whose annotation is invalid: reported once.
    invalid: HashSet<String>,
}

impl Bursts {
    pub(crate) fn new(settings: BurstSettings) -> Self {
        Self {
            settings,
            in_force: HashMap::new(),
            rejected: HashSet::new(),
            invalid: HashSet::new(),
        }
    }

    /// Decides, and returns the values that the decisions need: none unless they are written.
    pub(crate) fn pass(
        &mut self,
        config: &ActorConfig,
        inputs: &Inputs,
        mode: Mode,
    ) -> (BurstReport, RequiredValues) {
        let mode = match self.settings.can_burst {
            true => mode,
            false => Mode::Observing(Why::NoBurst),
        };
        let mut report = BurstReport {
            mode,
            containers: Vec::new(),
            others: BTreeMap::new(),
            changes: Vec::new(),
            writes: Writes::default(),
        };
        let members = self.choose(inputs, &mut report);
        let mut values = Values::new(config, self.settings.most_percent);
        for (member, percent) in &members {
            let usec = values.burst(member, *percent);
            let burst = self.in_force.get_mut(&member.row.identity.container_id);
            if let Some(burst) = burst {
                burst.usec = usec.unwrap_or_default();
            }
        }
        report.containers = self.in_force.values().cloned().collect();
        report.containers.sort_by(|a, b| {
            (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container))
        });
        let wanted = match report.mode {
            Mode::Enforcing => values.finish(),
            Mode::Observing(_) => RequiredValues::new(),
        };
        (report, wanted)
    }

    /// The containers that burst, with their bursts in percent. The others are counted by reason.
    fn choose<'a>(
        &mut self,
        inputs: &'a Inputs,
        report: &mut BurstReport,
    ) -> Vec<(Member<'a>, u64)> {
        let mut before = std::mem::take(&mut self.in_force);
        let rejected = std::mem::take(&mut self.rejected);
        let invalid = std::mem::take(&mut self.invalid);
        let mut members = Vec::new();
        let rows = inputs.snapshot.containers.iter();
        for row in rows.filter(|row| row.live && !row.identity.namespace.is_empty()) {
            let known = before.remove(&row.identity.container_id);
            let forecast = inputs.forecasts.get(&row.identity.labels);
            let member = Member::of(row, inputs);
            if member.as_ref().is_ok_and(Member::wants_more_quota) {
                let id = &row.identity.container_id;
                if !rejected.contains(id) {
                    report.changes.push((bursting(row, 0, None), BurstChange::Rejected));
                }
                self.rejected.insert(id.clone());
            }
            let uid = &row.identity.uid;
            if matches!(member, Err(Ineligible::InvalidAnnotation))
                && self.invalid.insert(uid.clone())
                && !invalid.contains(uid)
            {
                log_invalid(row, inputs);
            }
            let chosen = member.and_then(|member| {
                let before = known.as_ref().map(|known| known.percent);
                self.percent(&member, forecast, before).map(|percent| (member, percent))
            });
            match chosen {
                Ok((member, percent)) => {
                    let now = bursting(row, percent, known.as_ref());
                    if known.is_none_or(|known| known.percent < percent) {
                        report.changes.push((now.clone(), raised(forecast, percent)));
                    }
                    self.in_force.insert(row.identity.container_id.clone(), now);
                    members.push((member, percent));
                }
                Err(reason) => {
                    *report.others.entry(reason).or_default() += 1;
                    if let Some(known) = known {
                        report.changes.push((known, BurstChange::Ended(reason)));
                    }
                }
            }
        }
        members
    }

    /// Burst of a container, percent of its quota. `before` is the one in force.
    ///
    /// # Errors
    /// The reason why it has none.
    fn percent(
        &self,
        member: &Member<'_>,
        forecast: Option<&BurstForecast>,
        before: Option<u64>,
    ) -> Result<u64, Ineligible> {
        if !self.settings.can_burst {
            return Err(Ineligible::NoKernelSupport);
        }
        match member.request.map(|request| request.policy) {
            None | Some(BurstPolicy::CpuBurstOnly | BurstPolicy::Auto) => {}
            Some(BurstPolicy::CfsQuotaBurstOnly) => return Err(Ineligible::NotOffered),
            Some(BurstPolicy::None) => return Err(Ineligible::NotRequested),
        }
        let requested = member.request.map_or(u64::MAX, |request| request.cpu_burst_percent);
        let most = self.settings.most_percent.min(requested);
        let best = forecast.and_then(|forecast| forecast.best(most as f64 / 100.0, OBJECTIVE));
        let best = best.map(|share| (share * 100.0).round() as u64);
        // Less would be oscillation: the replay sees the work, not the burst in force.
        let percent = best.max(before).map(|percent| percent.min(most));
        let candidate = self.candidate(member, forecast, percent, before.is_some());
        match eligible(&candidate, &self.limits(before.is_some())) {
            Ok(()) => percent.ok_or(Ineligible::NoGain),
            // After a change of the limit there is no replay yet.
            Err(Ineligible::NotMeasured) if before.is_some() => {
                percent.ok_or(Ineligible::NotMeasured)
            }
            Err(reason) => Err(reason),
        }
    }

    /// The measurements. A burst in force removes the throttling that was the reason for it, so
    /// only the replay knows what would be without it.
    fn candidate(
        &self,
        member: &Member<'_>,
        forecast: Option<&BurstForecast>,
        percent: Option<u64>,
        is_in_force: bool,
    ) -> Candidate {
        let replayed = |percent: u64| forecast?.with(percent as f64 / 100.0);
        let without = replayed(0);
        let measured = forecast.and_then(|forecast| forecast.throttled_share);
        Candidate {
            exclusive: member.is_exclusive,
            best_effort: is_best_effort(member.pod),
            quota_usec: member.row.bandwidth.and_then(|own| own.quota.usec()),
            throttled_share: match is_in_force {
                true => without,
                false => measured.zip(without).map(|(measured, without)| measured.min(without)),
            },
            mean_use: forecast.and_then(|forecast| forecast.mean_use),
            predicted_share: percent.map_or(without, replayed),
        }
    }

    /// The conditions: looser for a burst in force, so that it does not come and go.
    fn limits(&self, is_in_force: bool) -> BurstLimits {
        let BurstLimits { least_throttled, most_use, least_gain } = self.settings.limits;
        match is_in_force {
            false => self.settings.limits,
            true => BurstLimits {
                least_throttled: least_throttled / 2.0,
                most_use: most_use * 1.2,
                least_gain: least_gain / 2.0,
            },
        }
    }
}

/// Logs the annotation that cannot be used, with the accepted form.
fn log_invalid(row: &ContainerRow, inputs: &Inputs) {
    let annotation = inputs.pods.pod(&row.identity.uid).and_then(|pod| pod.burst.as_deref());
    let error =
        annotation.and_then(|json| PodBurst::parse(json).err()).map(|error| error.to_string());
    tracing::warn!(
        namespace = row.identity.namespace,
        pod = row.identity.pod,
        annotation,
        error,
        "no burst for the pod: expected JSON such as {{\"policy\": \"cpuBurstOnly\", \"cpuBurstPercent\": 100}}; policy is \
         none, cpuBurstOnly, cfsQuotaBurstOnly or auto"
    );
}

fn bursting(row: &ContainerRow, percent: u64, before: Option<&Bursting>) -> Bursting {
    let identity = &row.identity;
    Bursting {
        namespace: identity.namespace.clone(),
        pod: identity.pod.clone(),
        container: identity.container.clone(),
        uid: identity.uid.clone(),
        percent,
        usec: before.map_or(0, |before| before.usec),
    }
}

fn raised(forecast: Option<&BurstForecast>, percent: u64) -> BurstChange {
    let share = |percent: u64| forecast.and_then(|forecast| forecast.with(percent as f64 / 100.0));
    BurstChange::Raised {
        without: share(0).unwrap_or_default(),
        with: share(percent).unwrap_or_default(),
    }
}
