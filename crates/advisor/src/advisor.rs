//! Follows the snapshots window by window and provides the advice.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use analysis::injection::{Injections, KnownWorkloads};
use analysis::{BurstForecasts, Facts, SANDBOX, UsageTrace, findings};
use api::{AdviceReport, ContainerReport, OBJECTIVE, Verdict, Workload};
use kubepods::model::Owner;
use metrics::AgentMetrics;
use runtimes::Detector;
use snapshot::{ContainerRow, NodeSnapshot, Published, ends_window};
use tokio::sync::Notify;

use crate::container_history::ContainerHistory;
use crate::lost::LostTimes;
use crate::node_facts::NodeFacts;
use crate::pod_throttles::PodThrottles;
use crate::pods::PodNumbers;
use crate::quotas::{Quotas, quotas};
use crate::workloads::Workloads;
use crate::{ROUND, qos};

/// Number of windows between two exports of the advice to the metrics: it changes once per minute,
/// and runtimes change when a container starts.
const EXPORT_EVERY: u64 = 10;

/// A longer window is a gap: the agent was stopped, and the arrival times of the work are unknown.
const MAX_WINDOW: Duration = Duration::from_secs(150);

/// Shared by the task that feeds it and the handlers that query it.
#[derive(Clone)]
pub struct Advisor(Arc<Mutex<NodeHistories>>);

/// All containers of the node.
struct NodeHistories {
    detector: Detector,
    metrics: Arc<AgentMetrics>,
    /// Value of the label `objective`.
    objective: Arc<str>,
    latest: Arc<NodeSnapshot>,
    /// One history per row of `latest`, in the same order.
    histories: Vec<ContainerHistory>,
    pods: PodNumbers,
    lost: LostTimes,
    throttles: PodThrottles,
    /// Time at which the counters at the start of the window were read.
    window_began: Option<Instant>,
    windows: u64,
    /// Observation time before a limit is advised, seconds.
    after_seconds: u64,
    workloads: Workloads,
    known: Published<KnownWorkloads>,
    injections: Published<Injections>,
    verdicts: Published<Vec<Verdict>>,
    restricted: Published<Vec<String>>,
}

impl Advisor {
    /// An advisor that detects runtimes in this `/proc`, and observes a container for `after`
    /// before it advises.
    #[must_use]
    pub fn new(proc_root: PathBuf, metrics: Arc<AgentMetrics>, after: Duration) -> Self {
        Self(Arc::new(Mutex::new(NodeHistories {
            detector: Detector::new(proc_root),
            metrics,
            objective: OBJECTIVE.to_string().into(),
            latest: Arc::default(),
            histories: Vec::new(),
            pods: PodNumbers::default(),
            lost: LostTimes::default(),
            throttles: PodThrottles::default(),
            window_began: None,
            windows: 0,
            after_seconds: after.as_secs(),
            workloads: Workloads::default(),
            known: Published::default(),
            injections: Published::default(),
            verdicts: Published::default(),
            restricted: Published::default(),
        })))
    }

    /// Knowledge of the workloads, for the environment of their next containers, also of those
    /// whose last container has ended some hours ago. Published once every ten windows.
    #[must_use]
    pub fn known(&self) -> Published<KnownWorkloads> {
        self.lock().known.clone()
    }

    /// Injected variables, which their owner publishes and the advice contains.
    #[must_use]
    pub fn injections(&self) -> Published<Injections> {
        self.lock().injections.clone()
    }

    /// Verdicts, which their owner publishes and the advice contains.
    #[must_use]
    pub fn verdicts(&self) -> Published<Vec<Verdict>> {
        self.lock().verdicts.clone()
    }

    /// UIDs of the pods that the agent restricts as best effort, which their owner publishes.
    /// Findings ignore the effects of this restriction.
    #[must_use]
    pub fn restricted(&self) -> Published<Vec<String>> {
        self.lock().restricted.clone()
    }

    /// Processes the latest snapshot whenever one is published, until the task is aborted. Calls
    /// `beat` after each round with the time in which the next one is due.
    pub async fn follow(
        self,
        published: Published<NodeSnapshot>,
        is_published: Arc<Notify>,
        beat: impl Fn(Duration) + Send,
    ) {
        loop {
            // On a timeout there is no new snapshot and nothing to do.
            let is_new = tokio::time::timeout(ROUND, is_published.notified()).await.is_ok();
            let latest = published.latest();
            if !is_new || self.lock().length_until(&latest).is_none() {
                beat(ROUND);
                continue;
            }
            let advisor = self.clone();
            // Reading /proc may block, and nothing else on this runtime may.
            let observed =
                tokio::task::spawn_blocking(move || advisor.lock().observe(latest)).await;
            match observed {
                Ok(()) => beat(ROUND),
                Err(error) => {
                    tracing::error!(%error, "failed to record a window of usage for the advice");
                }
            }
        }
    }

    /// Labels and cgroups of busy containers: of those that were never traced, or if there are none,
    /// of those with the oldest usage traces.
    pub(crate) fn due_for_trace(&self, count: usize) -> Vec<(Box<str>, Arc<str>)> {
        let mut node = self.lock();
        let rows = node.latest.containers.iter().zip(&node.histories).enumerate();
        let live = rows.filter(|(_, (row, _))| row.live);
        let mut wanted: Vec<_> =
            live.filter_map(|(at, (_, history))| Some((history.untraced_for()?, at))).collect();
        wanted.sort_by_key(|&(since, _)| std::cmp::Reverse(since));
        let never = wanted.iter().filter(|(since, _)| *since == Duration::MAX).count();
        wanted.truncate(if never > 0 { never.min(count) } else { count });
        let look = |(_, at): (Duration, usize)| {
            node.histories[at].begin_trace();
            let row = &node.latest.containers[at];
            Some((row.identity.labels.clone(), Arc::clone(row.cgroup.as_ref()?)))
        };
        wanted.into_iter().filter_map(look).collect()
    }

    /// Number of busy containers that were never traced.
    pub(crate) fn never_traced(&self) -> usize {
        let node = self.lock();
        node.live().filter(|(_, history)| history.untraced_for() == Some(Duration::MAX)).count()
    }

    /// Adds a usage trace of a container.
    pub(crate) fn learn(&self, labels: &str, trace: UsageTrace) {
        let mut node = self.lock();
        let at = node.latest.containers.iter().position(|row| *row.identity.labels == *labels);
        if let Some(history) = at.and_then(|at| node.histories.get_mut(at)) {
            history.learn(trace);
        }
    }

    /// The advice for every live container.
    #[must_use]
    pub fn advice(&self) -> AdviceReport {
        let node = self.lock();
        let quotas =
            quotas(&node.latest.pods, node.live().map(|(row, history)| (row, history.member(row))));
        let mut containers: Vec<_> =
            node.live().map(|(row, history)| node.report(row, history, &quotas)).collect();
        let rows: Vec<_> = node.live().map(|(row, _)| row).collect();
        qos::add_changes(&rows, &mut containers);
        AdviceReport { objective: OBJECTIVE, containers }
    }

    /// Forecasts of CPU burst for the live containers with limits of their own.
    #[must_use]
    pub fn burst_forecasts(&self) -> BurstForecasts {
        let node = self.lock();
        let forecasts = node.live().filter_map(|(row, history)| {
            let forecast = history.burst_forecast(row, node.after_seconds)?;
            Some((row.identity.labels.clone(), forecast))
        });
        forecasts.collect()
    }

    fn lock(&self) -> MutexGuard<'_, NodeHistories> {
        // After a panic, at most one window is lost.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeHistories {
    /// Length of the window that ends with this snapshot, by the times at which the sampler read
    /// its counters. Zero for the first snapshot, which only starts a window; `None` while the
    /// window is incomplete.
    fn length_until(&self, latest: &NodeSnapshot) -> Option<Duration> {
        let read_at = latest.read_at?;
        let Some(began) = self.window_began else { return Some(Duration::ZERO) };
        ends_window(began, read_at, latest.interval)
            .then(|| read_at.saturating_duration_since(began))
    }

    fn observe(&mut self, latest: Arc<NodeSnapshot>) {
        let Some((length, read_at)) = self.length_until(&latest).zip(latest.read_at) else {
            return;
        };
        self.window_began = Some(read_at);
        let length = if length > MAX_WINDOW { Duration::ZERO } else { length };
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(0);
        self.turn_to(latest);
        self.pods.follow(&self.latest);
        self.lost.follow(&self.latest, &self.pods);
        self.throttles.follow(&self.latest, &self.pods);
        let (after_seconds, cpus) = (self.after_seconds, self.latest.node.online_cpus());
        let restricted = self.restricted.latest();
        let rows = self.latest.containers.iter().zip(&mut self.histories).enumerate();
        for (at, (row, history)) in rows.filter(|(_, (row, _))| row.live) {
            let pod = self.pods.of_container(at);
            let (lost_ns, pod_throttled) =
                (self.lost.of(row, pod), self.throttles.counter(row, pod));
            let is_restricted = restricted.contains(&row.identity.uid);
            let node = NodeFacts { after_seconds, cpus, lost_ns, pod_throttled, is_restricted };
            history.observe(row, length_ns, node);
            history.detect(row, &mut self.detector);
        }
        if self.windows.is_multiple_of(EXPORT_EVERY) {
            self.export(read_at);
        }
        self.windows += 1;
    }

    /// Assigns the histories to the new rows by labels, which survive restarts.
    fn turn_to(&mut self, latest: Arc<NodeSnapshot>) {
        let before = std::mem::replace(&mut self.latest, latest);
        let (old, new) = (&before.containers, &self.latest.containers);
        let is_same =
            |(old, new): (&ContainerRow, &ContainerRow)| Arc::ptr_eq(&old.identity, &new.identity);
        if old.len() == new.len() && old.iter().zip(new).all(is_same) {
            return;
        }
        let labels = old.iter().map(|row| &*row.identity.labels);
        let mut known: HashMap<&str, ContainerHistory> =
            labels.zip(std::mem::take(&mut self.histories)).collect();
        let history = |row: &ContainerRow| {
            known.remove(&*row.identity.labels).unwrap_or_else(|| match self.windows {
                0 => ContainerHistory::default(),
                _ => ContainerHistory::of_a_start(),
            })
        };
        self.histories = new.iter().map(history).collect();
        self.pods.renumber(new);
    }

    /// All live containers.
    fn live(&self) -> impl Iterator<Item = (&ContainerRow, &ContainerHistory)> {
        self.latest.containers.iter().zip(&self.histories).filter(|(row, _)| row.live)
    }

    fn export(&mut self, now: Instant) {
        let rows = self.live().filter(|(row, _)| !row.identity.namespace.is_empty());
        let rows = rows.map(|(row, history)| history.advised(row, &self.objective)).collect();
        self.metrics.advice().set(rows);
        self.add_workloads(now);
        self.known.publish(self.workloads.known());
    }

    /// Adds what the containers have shown: first those that have ended.
    fn add_workloads(&mut self, now: Instant) {
        let rows = || self.latest.containers.iter().zip(&self.histories);
        let ended = rows().filter(|(row, _)| !row.live);
        let live = rows().filter(|(row, _)| row.live);
        let named = ended.chain(live).filter(|(row, _)| !row.identity.namespace.is_empty());
        let shown = named.map(|(row, history)| {
            let identity = &row.identity;
            let key = [&identity.namespace, &identity.container, &identity.image];
            let [namespace, container, image] = key.map(Clone::clone);
            ((namespace, container, image), history.shown())
        });
        self.workloads.add(shown, now);
    }

    /// The verdict about a container's pod, if others slow it and the container is its busiest.
    fn slowed(&self, row: &ContainerRow) -> Option<Verdict> {
        let verdicts = self.verdicts.latest();
        let verdict = verdicts.iter().find(|verdict| {
            let victim = &verdict.victim;
            (&victim.namespace, &victim.pod) == (&row.identity.namespace, &row.identity.pod)
        });
        let verdict = verdict.filter(|verdict| verdict.is_harm())?;
        let of_pod = self.live().map(|(row, _)| row).filter(|other| {
            (&other.identity.namespace, &other.identity.pod)
                == (&row.identity.namespace, &row.identity.pod)
        });
        let busiest = of_pod.max_by_key(|row| row.usage_ns)?;
        std::ptr::eq(busiest, row).then(|| verdict.clone())
    }

    /// Whether the sandbox of a container's pod uses CPU, as those of gVisor do.
    fn has_busy_sandbox(&self, row: &ContainerRow) -> bool {
        self.live().any(|(other, _)| {
            other.identity.container == SANDBOX && other.identity.uid == row.identity.uid
        }) && row.identity.container != SANDBOX
    }

    fn report(
        &self,
        row: &ContainerRow,
        history: &ContainerHistory,
        quotas: &Quotas<'_>,
    ) -> ContainerReport {
        let pod = quotas.get(&(&*row.identity.namespace, &*row.identity.pod)).copied();
        let injected = self.injections.latest().get(&row.identity.container_id).cloned();
        let mut facts = Facts {
            pod,
            slowed: self.slowed(row),
            injected: injected.unwrap_or_default(),
            ..history.facts(row, &self.latest.node)
        };
        if self.has_busy_sandbox(row) {
            // The container's use is part of the sandbox's.
            (facts.cpu.request_cores, facts.cpu.most_cores) = (None, None);
        }
        let limit_cores = facts.limit_cores;
        if self.restricted.latest().contains(&row.identity.uid) {
            // The quota of the pod is the agent's.
            (facts.pod, facts.limit_cores) = (None, facts.own_limit_cores);
        }
        ContainerReport {
            namespace: row.identity.namespace.clone(),
            pod: row.identity.pod.clone(),
            container: row.identity.container.clone(),
            workload: row.identity.workload.as_ref().map(workload),
            limit_cores,
            request_cores: facts.request_cores,
            not_enough_history: analysis::not_enough_history(
                facts.cpu.watched_seconds,
                self.after_seconds,
            ),
            findings: findings(&facts),
            runtime: facts.runtime,
            cpu: facts.cpu,
            memory: facts.memory,
            injected: facts.injected,
            qos_change: None,
        }
    }
}

fn workload(owner: &Owner) -> Workload {
    Workload { kind: owner.kind.to_string(), name: owner.name.to_string() }
}

#[cfg(test)]
mod tests;
