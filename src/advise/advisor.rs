//! Follows the snapshots, one window a second, and answers with advice.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use analysis::{Facts, OBJECTIVE, Stretch, findings};
use metrics::AgentMetrics;
use runtimes::Detector;
use sampler::Published;
use sampler::snapshot::{ContainerRow, NodeSnapshot};

use super::quotas::{Quotas, quotas};
use super::report::{ContainerReport, Report};
use super::subject::Subject;

/// Windows from one look of the metrics at the advice to the next: it changes once a minute, and runtimes when a
/// container starts.
const EXPORT_EVERY: u64 = 10;

const WINDOW: Duration = Duration::from_secs(1);

/// Shared by the task that feeds it and the handlers that ask it.
#[derive(Clone)]
pub(crate) struct Advisor(Arc<Mutex<Node>>);

/// All containers of the node.
struct Node {
    detector: Detector,
    metrics: Arc<AgentMetrics>,
    /// The value of the label.
    objective: Arc<str>,
    /// By the labels of the series, which outlive restarts.
    subjects: HashMap<Box<str>, Subject>,
    latest: Arc<NodeSnapshot>,
    last: Option<Instant>,
    windows: u64,
    /// Windows of a container before a limit is advised.
    fewest_windows: usize,
}

impl Advisor {
    /// An advisor that looks for runtimes in this `/proc`, and watches a container for so long before it advises.
    pub(crate) fn new(proc_root: PathBuf, metrics: Arc<AgentMetrics>, after: Duration) -> Self {
        Self(Arc::new(Mutex::new(Node {
            detector: Detector::new(proc_root),
            metrics,
            objective: OBJECTIVE.to_string().into(),
            subjects: HashMap::new(),
            latest: Arc::default(),
            last: None,
            windows: 0,
            fewest_windows: (after.as_secs() / WINDOW.as_secs()).max(1) as usize,
        })))
    }

    /// Takes in a snapshot a second, until it is aborted.
    pub(crate) async fn follow(self, published: Published) {
        let mut second = tokio::time::interval(WINDOW);
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            let (advisor, latest) = (self.clone(), published.latest());
            // Reading /proc may wait; nothing else on this runtime does.
            let observed = tokio::task::spawn_blocking(move || advisor.lock().observe(latest, Instant::now())).await;
            if let Err(error) = observed {
                tracing::error!(%error, "a window of the advice is lost");
            }
        }
    }

    /// Labels and cgroups of busy containers whose shape has not been looked for the longest.
    pub(super) fn wanted_shapes(&self, count: usize) -> Vec<(Box<str>, Arc<str>)> {
        let mut node = self.lock();
        let latest = Arc::clone(&node.latest);
        let live = latest.containers.iter().filter(|row| row.live);
        let mut wanted: Vec<_> = live
            .filter_map(|row| {
                let since = node.subjects.get(&row.identity.labels)?.windows_without_a_look()?;
                Some((since, &row.identity.labels, row.cgroup.as_ref()?))
            })
            .collect();
        wanted.sort_by_key(|&(since, ..)| std::cmp::Reverse(since));
        wanted.truncate(count);
        for (_, labels, _) in &wanted {
            if let Some(subject) = node.subjects.get_mut(*labels) {
                subject.look();
            }
        }
        wanted.into_iter().map(|(_, labels, cgroup)| (labels.clone(), Arc::clone(cgroup))).collect()
    }

    /// Takes in how a container's work has just arrived.
    pub(super) fn propose(&self, labels: &str, shape: Stretch) {
        if let Some(subject) = self.lock().subjects.get_mut(labels) {
            subject.propose(shape);
        }
    }

    /// The advice for every container that lives.
    pub(crate) fn advice(&self) -> Report {
        let node = self.lock();
        let quotas = quotas(&node.latest, |row| {
            node.subjects.get(&row.identity.labels).map(|subject| subject.member(row)).unwrap_or_default()
        });
        let rows = node.latest.containers.iter().filter(|row| row.live);
        Report { objective: OBJECTIVE, containers: rows.filter_map(|row| node.report(row, &quotas)).collect() }
    }

    fn lock(&self) -> MutexGuard<'_, Node> {
        // A window that panicked has lost at most that window.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    fn observe(&mut self, latest: Arc<NodeSnapshot>, now: Instant) {
        if latest.sequence == self.latest.sequence {
            return;
        }
        let length = self.last.replace(now).map_or(Duration::ZERO, |last| now.duration_since(last));
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(0);
        for row in latest.containers.iter().filter(|row| row.live) {
            let labels = &row.identity.labels;
            if !self.subjects.contains_key(labels) {
                self.subjects.insert(labels.clone(), Subject::default());
            }
            let Some(subject) = self.subjects.get_mut(labels) else { continue };
            subject.observe(row, length_ns, self.fewest_windows);
            subject.detect(row, &mut self.detector);
        }
        if self.subjects.len() > latest.containers.len() {
            let known: std::collections::HashSet<&str> =
                latest.containers.iter().map(|row| &*row.identity.labels).collect();
            self.subjects.retain(|labels, _| known.contains(&**labels));
        }
        self.latest = latest;
        if self.windows.is_multiple_of(EXPORT_EVERY) {
            self.export();
        }
        self.windows += 1;
    }

    fn export(&self) {
        let rows = self.latest.containers.iter().filter(|row| row.live && !row.identity.namespace.is_empty());
        let subject = |row: &ContainerRow| self.subjects.get(&row.identity.labels);
        let rows = rows.filter_map(|row| Some(subject(row)?.advised(row, &self.objective))).collect();
        self.metrics.advice().set(rows);
    }

    fn report(&self, row: &ContainerRow, quotas: &Quotas<'_>) -> Option<ContainerReport> {
        let pod = quotas.get(&(&*row.identity.namespace, &*row.identity.pod)).copied();
        let facts = self.subjects.get(&row.identity.labels)?.facts(row, &self.latest.node.kernel.release);
        let facts = Facts { pod, ..facts };
        Some(ContainerReport {
            namespace: row.identity.namespace.clone(),
            pod: row.identity.pod.clone(),
            container: row.identity.container.clone(),
            limit_cores: facts.limit_cores,
            request_cores: facts.request_cores,
            findings: findings(&facts),
            runtime: facts.runtime,
            cpu: facts.cpu,
            memory: facts.memory,
        })
    }
}
