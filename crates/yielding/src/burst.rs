//! CPU limits that burst: which containers, how much, and the values that this needs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use analysis::BurstForecast;
use api::OBJECTIVE;
use cgroupfs::Hierarchy;
use colocation::{BurstLimits, BurstPolicy, Candidate, Ineligible, PodBurst, burst_usec, eligible};
use kubepods::model::{Container, Pod};
use snapshot::ContainerRow;

use crate::actor::{ActorConfig, Mode};
use crate::inputs::Inputs;
use crate::pods::is_best_effort;
use crate::setting::{Kind, QuotaSetting};
use crate::want::{MIN_QUOTA_USEC, Want};
use crate::writer::{RequiredValues, Writes};

/// Reason for [`BurstChange::Rejected`].
const NOT_OFFERED: &str = "not_offered";

/// Settings of burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstSettings {
    /// Maximum burst, percent of the quota, below 100.
    pub most_percent: u64,
    /// Conditions for burst.
    pub limits: BurstLimits,
    /// Whether the kernel has CPU burst.
    pub can_burst: bool,
}

impl Default for BurstSettings {
    fn default() -> Self {
        let limits = BurstLimits::default();
        Self { most_percent: 75, limits, can_burst: true }
    }
}

/// Whether the kernel has CPU burst (Linux 5.14).
#[must_use]
pub fn has_burst(hierarchy: &Hierarchy) -> bool {
    Kind::Burst.is_available(hierarchy)
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
    Ended(&'static str),
    /// The annotation requests a quota above the limit, which is not offered: reported once.
    Rejected,
}

impl BurstChange {
    /// Label values in metrics: the action and its reason.
    #[must_use]
    pub const fn names(&self) -> [&'static str; 2] {
        match self {
            Self::Raised { .. } => ["raise", "throttled"],
            Self::Ended(reason) => ["end", reason],
            Self::Rejected => ["reject", NOT_OFFERED],
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
    pub others: BTreeMap<&'static str, usize>,
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
}

/// A container with its pod.
struct Member<'a> {
    row: &'a ContainerRow,
    pod: &'a Pod,
    /// The container in the pod's spec.
    spec: &'a Container,
    request: Option<PodBurst>,
    is_exclusive: bool,
}

impl<'a> Member<'a> {
    /// Finds the pod of a row.
    ///
    /// # Errors
    /// The reason why the container cannot burst.
    fn of(row: &'a ContainerRow, inputs: &'a Inputs) -> Result<Self, &'static str> {
        let identity = &row.identity;
        let pod = inputs.pods.pod(&identity.uid).ok_or("unknown_pod")?;
        let spec = pod.container_by_name(&identity.container).ok_or("unknown_pod")?;
        let request = pod.burst.as_deref().map(PodBurst::parse).transpose();
        let request = request.map_err(|_| "invalid_annotation")?;
        let name = (pod.namespace.clone(), pod.name.clone());
        let is_exclusive =
            matches!(&*identity.cpu_qos, "LSE" | "LSR") || inputs.exclusive_pods.contains(&name);
        Ok(Self { row, pod, spec, request, is_exclusive })
    }

    fn wants_more_quota(&self) -> bool {
        self.request.is_some_and(|request| request.wants_more_quota())
    }

    /// Quota that the pod's spec requires, microseconds per period: during an in-place resize the
    /// next one; `None` without a limit.
    fn desired_usec(&self, period: u64) -> Option<u64> {
        let of_pod = self.pod.resources.cpu_limit_millis;
        let millis = self.spec.resources.cpu_limit_millis.or(of_pod)?;
        Some(quota_usec(millis, period))
    }
}

/// The kubelet's quota for a limit (`MilliCPUToQuota` of pkg/kubelet/cm).
fn quota_usec(millis: u64, period: u64) -> u64 {
    (millis.saturating_mul(period) / 1000).max(MIN_QUOTA_USEC)
}

impl Bursts {
    pub(crate) fn new(settings: BurstSettings) -> Self {
        Self { settings, in_force: HashMap::new(), rejected: HashSet::new() }
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
            false => Mode::Observing("the kernel has no CPU burst: it needs Linux 5.14".to_owned()),
        };
        let mut report = BurstReport {
            mode,
            containers: Vec::new(),
            others: BTreeMap::new(),
            changes: Vec::new(),
            writes: Writes::default(),
        };
        let members = self.choose(inputs, &mut report);
        let (wanted, pods) = (RequiredValues::new(), BTreeMap::new());
        let most_percent = self.settings.most_percent;
        let mut values = Values { config, most_percent, wanted, pods };
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
    ) -> Result<u64, &'static str> {
        if !self.settings.can_burst {
            return Err("no_kernel_support");
        }
        match member.request.map(|request| request.policy) {
            None | Some(BurstPolicy::CpuBurstOnly | BurstPolicy::Auto) => {}
            Some(BurstPolicy::CfsQuotaBurstOnly) => return Err(NOT_OFFERED),
            Some(BurstPolicy::None) => return Err("not_requested"),
        }
        let requested = member.request.map_or(u64::MAX, |request| request.cpu_burst_percent);
        let most = self.settings.most_percent.min(requested);
        let best = forecast.and_then(|forecast| forecast.best(most as f64 / 100.0, OBJECTIVE));
        let best = best.map(|share| (share * 100.0).round() as u64);
        // Less would be oscillation: the replay sees the work, not the burst in force.
        let percent = best.max(before).map(|percent| percent.min(most));
        let candidate = self.candidate(member, forecast, percent, before.is_some());
        match eligible(&candidate, &self.limits(before.is_some())) {
            Ok(()) => percent.ok_or(Ineligible::NoGain.name()),
            // After a change of the limit there is no replay yet.
            Err(Ineligible::NotMeasured) if before.is_some() => {
                percent.ok_or(Ineligible::NotMeasured.name())
            }
            Err(reason) => Err(reason.name()),
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

/// Sums of a pod's containers, as shares of a period.
#[derive(Default)]
struct PodSum {
    burst: f64,
    /// The pod-level limit of the spec, millicores.
    limit_millis: Option<u64>,
    uid: Box<str>,
}

/// The values to write.
struct Values<'a> {
    config: &'a ActorConfig,
    /// Maximum burst, percent of the quota.
    most_percent: u64,
    wanted: RequiredValues,
    pods: BTreeMap<PathBuf, PodSum>,
}

impl Values<'_> {
    /// Adds a container's burst: below its quota, below the one that the spec requires, and below
    /// the one that the runtime is about to write, so that the quota can be lowered. Returns the
    /// burst, microseconds; `None` if there is no quota.
    fn burst(&mut self, member: &Member<'_>, percent: u64) -> Option<u64> {
        let path = PathBuf::from(member.row.cgroup.as_deref()?);
        let QuotaSetting { quota, period } = self.quota(&path)?;
        let id = &member.row.identity.container_id;
        let quota = self.config.resizes.lowest(id, quota?)?;
        let quota = quota.min(member.desired_usec(period).unwrap_or(u64::MAX));
        let usec = burst_usec(Some(quota), percent);
        let pod = self.pods.entry(path.parent()?.to_owned()).or_default();
        pod.burst += usec as f64 / period as f64;
        pod.limit_millis = member.pod.resources.cpu_limit_millis;
        pod.uid.clone_from(&member.pod.uid);
        self.wanted.insert((path, Kind::Burst), Want::Exactly(usec.to_string()));
        Some(usec)
    }

    /// The bandwidth of a cgroup; `None` if it cannot be read.
    fn quota(&self, path: &Path) -> Option<QuotaSetting> {
        let hierarchy = &self.config.hierarchy;
        QuotaSetting::read(&hierarchy.cpu.join(path), hierarchy.version)
    }

    /// Adds the pods' values: what their containers may use more, the pod must be allowed to.
    fn finish(mut self) -> RequiredValues {
        for (path, sum) in std::mem::take(&mut self.pods) {
            let Some(QuotaSetting { quota, period }) = self.quota(&path) else { continue };
            let Some(quota) = quota else { continue };
            let desired = sum.limit_millis.map(|millis| quota_usec(millis, period));
            let lowest = self.config.resizes.lowest(&sum.uid, quota);
            let lowest = lowest.map(|lowest| lowest.min(desired.unwrap_or(lowest)));
            let burst = (sum.burst * period as f64).round() as u64;
            let burst = burst.min(burst_usec(lowest, self.most_percent));
            if burst > 0 {
                let burst = Want::Exactly(burst.to_string());
                self.wanted.insert((path, Kind::Burst), burst);
            }
        }
        self.wanted
    }
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
