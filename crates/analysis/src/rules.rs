//! The checklist of rules: each checks the facts and returns figures and a change, or nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::{
    Finding, FindingKind, Injected, InjectionStatus, Language, Runtime, Severity, SlowedReason,
    figures_in_words,
};
use serde_json::Value;
use snapshot::Limit;

use crate::collections;
use crate::facts::{Facts, Place, Spec};
use crate::patch;
use crate::quota;
use crate::request;

/// Minimum share of throttled periods for a container to count as throttled.
pub const THROTTLED_SHARE: f64 = 0.05;
/// Minimum time lost to other pods that slows a service, core-seconds per second.
const LOST_CORES: f64 = 0.02;
/// Maximum ratio of an estimated percentile of use to the true one.
const USE_ERROR: f64 = 1.15;
/// Cores that are too few to matter.
pub(crate) const SMALL_CORES: f64 = 0.1;

pub(crate) type Figures = Vec<(&'static str, f64)>;
pub(crate) type Answer = Option<(Figures, Change)>;
type Rule = fn(&Facts) -> Answer;

/// The advised change.
pub(crate) enum Change {
    /// A strategic-merge patch of the workload.
    Patch(Value),
    /// No patch, with the reason: no field of the workload is the fix, or not yet.
    None(Cow<'static, str>),
}

impl Change {
    pub(crate) fn none(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::None(reason.into())
    }

    pub(crate) fn or(patch: Option<Value>, otherwise: &'static str) -> Self {
        patch.map_or_else(|| Self::none(otherwise), Self::Patch)
    }
}

/// The rules, in the order of the findings.
const RULES: [(FindingKind, Rule); 23] = [
    (FindingKind::SlowedByOthers, slowed_by_others),
    (FindingKind::ThrottledByOwnQuota, quota::throttled_by_own_quota),
    (FindingKind::LimitTooTightForBursts, quota::limit_too_tight_for_bursts),
    (FindingKind::ThrottledByAncestor, quota::throttled_by_ancestor),
    (FindingKind::ClaimedCpusThrottled, quota::claimed_cpus_throttled),
    (FindingKind::ParallelismAboveLimit, parallelism_above_limit),
    (FindingKind::GoIgnoresLimit, go_ignores_limit),
    (FindingKind::NoCpuRequest, request::none),
    (FindingKind::ParallelismBelowLimit, parallelism_below_limit),
    (FindingKind::RequestAboveUse, request::above_use),
    (FindingKind::RequestBelowUse, request::below_use),
    (FindingKind::FractionalLimit, quota::fractional_limit),
    (FindingKind::LimitNotInForce, quota::limit_not_in_force),
    (FindingKind::NoMemoryLimit, no_memory_limit),
    (FindingKind::MemoryLimitNotRequest, memory_limit_not_request),
    (FindingKind::HeapNearLimit, collections::heap_near_limit),
    (FindingKind::GcCostly, collections::costly),
    (FindingKind::GcInThrottledTime, collections::in_throttled_time),
    (FindingKind::GcTooOften, collections::too_often),
    (FindingKind::GcSettingFightsLimit, collections::setting_fights_limit),
    (FindingKind::HeapLimitUnset, heap_limit_unset),
    (FindingKind::InjectedEnvStale, injected_env_stale),
    (FindingKind::KernelSliceExpiry, kernel_slice_expiry),
];

/// All findings for these facts, warnings first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let Spec { place, is_of_a_job, .. } = facts.spec.unwrap_or_default();
    if place == Place::Ephemeral {
        return Vec::new();
    }
    let found = RULES.iter().filter_map(|(kind, rule)| {
        let (figures, change) = rule(facts)?;
        let (patch, no_patch) = match change {
            Change::Patch(_) if is_of_a_job => (None, Some(OF_A_JOB.to_owned())),
            Change::Patch(_) if facts.container == SANDBOX => (None, Some(OF_SANDBOX.to_owned())),
            Change::Patch(patch) => (Some(patch::of_place(patch, place)), None),
            Change::None(reason) => (None, Some(reason.into_owned())),
        };
        let evidence: BTreeMap<_, _> =
            figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
        let docs = format!("advice.md#{}", kind.as_str());
        Some(Finding {
            kind: *kind,
            severity: severity(*kind, facts),
            summary: summary(*kind, facts),
            figures: figures_in_words(&evidence),
            evidence,
            windows: facts.cpu.windows,
            patch,
            no_patch,
            docs,
        })
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Name of a pod's sandbox in the place of a container's.
pub const SANDBOX: &str = "POD";
const OF_SANDBOX: &str = "the sandbox of a pod has no fields of its own: change the limits and requests of the containers";

const OF_A_JOB: &str =
    "the template of a Job cannot be changed: change what creates the Job, such as a CronJob";

/// A request that is too low is a warning once other pods take what it does not cover. Waits whose
/// cause is unknown may be those of its own threads.
fn severity(kind: FindingKind, facts: &Facts) -> Severity {
    let reason = facts.slowed.as_ref().map(|verdict| verdict.reason);
    match kind {
        FindingKind::SlowedByOthers if reason == Some(SlowedReason::Unknown) => Severity::Info,
        FindingKind::RequestBelowUse if facts.lost_cores.is_some_and(|lost| lost >= LOST_CORES) => {
            Severity::Warning
        }
        _ => kind.severity(),
    }
}

/// Reports more threads than the limit rounded up, which is the runtimes' own default.
fn parallelism_above_limit(facts: &Facts) -> Answer {
    let (parallelism, runtime) = parallelism(facts)?;
    let limit = facts.limit_cores?;
    if parallelism <= limit.ceil() {
        return None;
    }
    let figures = vec![("parallelism", parallelism), ("limitCores", limit)];
    Some((figures, lowered_parallelism(facts, runtime)?))
}

/// Only for the container's own limit: other containers share a pod's limit. Use above the
/// parallelism means that there are threads the agent does not know.
fn parallelism_below_limit(facts: &Facts) -> Answer {
    let (parallelism, runtime) = parallelism(facts)?;
    let limit = facts.own_limit_cores?.min(facts.limit_cores?);
    let usable = facts.cpus.map_or(limit, |cpus| limit.min(f64::from(cpus))).floor();
    let has_used_more = facts.cpu.request_cores.is_some_and(|p95| p95 > parallelism * USE_ERROR);
    if usable - parallelism < 1.0 || has_used_more {
        return None;
    }
    let figures = vec![("parallelism", parallelism), ("limitCores", limit)];
    Some((figures, set_parallelism(facts, runtime, usable as u32)))
}

/// Not for a container with no more CPUs than its limit: there it makes no difference.
fn go_ignores_limit(facts: &Facts) -> Answer {
    let runtime = go(facts)?;
    let limit = facts.limit_cores?;
    let (major, minor) = version(runtime.version.as_deref()?.strip_prefix("go")?)?;
    if (major, minor) >= (1, 25)
        || runtime.automaxprocs
        || runtime.settings.contains_key("GOMAXPROCS")
    {
        return None;
    }
    if runtime.parallelism.is_some_and(|threads| f64::from(threads) <= limit) {
        return None;
    }
    let figures = vec![("limitCores", limit), ("goMinorVersion", f64::from(minor))];
    Some((figures, lowered_parallelism(facts, runtime)?))
}

/// Only where another container of the pod has one: an owner who sets none does so on purpose.
fn no_memory_limit(facts: &Facts) -> Answer {
    let reason = "only the owner knows the required memory";
    let spec = facts.spec?;
    let is_left_out = spec.has_memory_limits && !spec.pod_limits_memory;
    let has_none = facts.memory_limit == Limit::Unlimited && is_left_out;
    has_none.then(|| (Figures::new(), Change::none(reason)))
}

fn memory_limit_not_request(facts: &Facts) -> Answer {
    let (spec, in_force) = (facts.spec?, facts.memory_limit.limited()?);
    let (limit, request) =
        (spec.memory_limit.unwrap_or(in_force), facts.memory_request.unwrap_or(0));
    let figures = vec![("memoryLimitBytes", limit as f64), ("memoryRequestBytes", request as f64)];
    let change = match spec.pod_limits_memory || spec.pod_requests_memory {
        true => Change::none(
            "pod-level memory resources apply to all containers: set the pod-level request first",
        ),
        false => Change::Patch(patch::memory_request(&facts.container, limit)),
    };
    (request < limit).then_some((figures, change))
}

fn heap_limit_unset(facts: &Facts) -> Answer {
    let (runtime, limit) = (facts.runtime.as_ref()?, facts.memory_limit.limited()?);
    let is_set = |name: &&str| runtime.settings.contains_key(*name);
    let knows_limit = match runtime.language {
        Language::Go => runtime.automemlimit || has_memory_limit(runtime),
        // By default the heap is a quarter of the limit.
        Language::Jvm => !runtime.jvm_ignores_limits() || ["Xmx", "@file"].iter().any(is_set),
        _ => return None,
    };
    if knows_limit {
        return None;
    }
    let mut figures = vec![("memoryLimitBytes", limit as f64)];
    let soft = facts.memory.and_then(|memory| memory.soft_limit_bytes);
    figures.extend(soft.map(|soft| ("recommendedSoftLimitBytes", soft as f64)));
    let change = match runtime.language {
        Language::Go => Change::or(
            soft.map(|soft| patch::environment(&facts.container, "GOMEMLIMIT", &soft.to_string())),
            if facts.memory.is_some() {
                "1.25 times the live set is more than 90 % of the limit: raise the limit first"
            } else {
                "the live set is unknown"
            },
        ),
        _ => Change::none(
            "the heap is sized by the node's memory: remove -XX:-UseContainerSupport, or update a JVM before 8u191 or 10; \
             until then set -Xmx",
        ),
    };
    Some((figures, change))
}

/// A running process keeps its environment; only a new container gets the values of the current
/// limits.
fn injected_env_stale(facts: &Facts) -> Answer {
    let stale: Vec<_> =
        facts.injected.iter().filter(|one| one.status == InjectionStatus::Stale).collect();
    let now = |one: &Injected| match &one.current {
        Some(value) => format!("{}={} was injected, now {value}", one.name, one.value),
        None => format!("{}={} was injected, now unset", one.name, one.value),
    };
    let text = stale.iter().map(|one| now(one)).collect::<Vec<_>>().join(", ");
    (!stale.is_empty()).then(|| {
        let reason = format!("the limits have changed ({text}); restart the pod to apply them");
        (vec![("staleVariables", stale.len() as f64)], Change::none(reason))
    })
}

/// An empty value and `off` both mean unset (runtime/mgcpacer.go, `readGOMEMLIMIT`).
fn has_memory_limit(go: &Runtime) -> bool {
    go.settings.get("GOMEMLIMIT").is_some_and(|limit| !matches!(limit.as_str(), "" | "off"))
}

/// One finding per victim, on its busiest container. A request below the use is the first remedy:
/// requests set the weights by which pods share the CPUs.
fn slowed_by_others(facts: &Facts) -> Answer {
    let verdict = facts.slowed.as_ref().filter(|verdict| verdict.is_harm())?;
    let mut figures = vec![
        ("slowedFactor", verdict.factor()),
        ("lostShare", verdict.share),
        ("slowedSecondsOfLastMinute", verdict.slowed_seconds),
        ("podUsedCores", verdict.used_cores),
    ];
    figures.extend(verdict.request_cores.map(|cores| ("podRequestCores", cores)));
    if let Some(culprit) = verdict.culprit().filter(|culprit| !culprit.is_system()) {
        figures.push(("culpritUsedCores", culprit.used_cores));
        figures.extend(culprit.request_cores.map(|cores| ("culpritRequestCores", cores)));
    }
    let change = match verdict.request_too_low {
        true => request::raised(facts),
        false => Change::none("no field of this workload fixes it"),
    };
    Some((figures, change))
}

/// The text of a finding that its figures do not contain.
fn summary(kind: FindingKind, facts: &Facts) -> Option<String> {
    let verdict = facts.slowed.as_ref().filter(|_| kind == FindingKind::SlowedByOthers)?;
    Some(format!("{}: {}", verdict.summary, verdict.remedy))
}

/// Fixed by 512ac999 in 5.4. Distributions backported it to older kernels, which the release does
/// not show.
fn kernel_slice_expiry(facts: &Facts) -> Answer {
    let (major, minor) = version(&facts.kernel_release)?;
    facts.limit_cores?;
    let figures = vec![("kernelMajor", f64::from(major)), ("kernelMinor", f64::from(minor))];
    ((major, minor) < (5, 4)).then_some((figures, Change::none("upgrade the kernel of the node")))
}

fn parallelism(facts: &Facts) -> Option<(f64, &Runtime)> {
    let runtime = facts.runtime.as_ref()?;
    Some((f64::from(runtime.parallelism?), runtime))
}

fn go(facts: &Facts) -> Option<&Runtime> {
    facts.runtime.as_ref().filter(|runtime| runtime.language == Language::Go)
}

/// Reduces the threads to what the limit supplies after the advised change; `None` if that limit
/// supplies all threads.
fn lowered_parallelism(facts: &Facts, runtime: &Runtime) -> Option<Change> {
    let whole = quota::limit_to_be(facts)?.floor().max(1.0) as u32;
    if runtime.parallelism.is_some_and(|threads| threads <= whole) {
        return Some(Change::none("the recommended higher limit is enough for all threads"));
    }
    Some(set_parallelism(facts, runtime, whole))
}

fn set_parallelism(facts: &Facts, runtime: &Runtime, threads: u32) -> Change {
    let name = match runtime.language {
        Language::Go => "GOMAXPROCS",
        Language::Dotnet => "DOTNET_PROCESSOR_COUNT",
        Language::Python => "OMP_NUM_THREADS",
        Language::Rust => "TOKIO_WORKER_THREADS",
        Language::Jvm => {
            return Change::none(
                "a patch would overwrite other options in JAVA_TOOL_OPTIONS: add -XX:ActiveProcessorCount",
            );
        }
        Language::Nodejs => {
            return Change::none(
                "an event loop uses one core: run more replicas or processes, or lower the limit",
            );
        }
        Language::Unknown => return Change::none("no setting is known for this runtime"),
    };
    Change::Patch(patch::environment(&facts.container, name, &threads.to_string()))
}

/// The first two numbers of a version: major and minor.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
