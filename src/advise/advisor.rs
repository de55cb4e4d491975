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
    latest: Arc<NodeSnapshot>,
    /// One a row of `latest`, in its order.
    subjects: Vec<Subject>,
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
            latest: Arc::default(),
            subjects: Vec::new(),
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
        let rows = node.latest.containers.iter().zip(&node.subjects).enumerate();
        let live = rows.filter(|(_, (row, _))| row.live);
        let mut wanted: Vec<_> =
            live.filter_map(|(at, (_, subject))| Some((subject.windows_without_a_look()?, at))).collect();
        wanted.sort_by_key(|&(since, _)| std::cmp::Reverse(since));
        wanted.truncate(count);
        let look = |(_, at): (u64, usize)| {
            node.subjects[at].look();
            let row = &node.latest.containers[at];
            Some((row.identity.labels.clone(), Arc::clone(row.cgroup.as_ref()?)))
        };
        wanted.into_iter().filter_map(look).collect()
    }

    /// A busy container's shape was never looked for.
    pub(super) fn awaits_first_look(&self) -> bool {
        self.lock().live().any(|(_, subject)| subject.windows_without_a_look() == Some(u64::MAX))
    }

    /// Takes in how a container's work has just arrived.
    pub(super) fn propose(&self, labels: &str, shape: Stretch) {
        let mut node = self.lock();
        let at = node.latest.containers.iter().position(|row| *row.identity.labels == *labels);
        if let Some(subject) = at.and_then(|at| node.subjects.get_mut(at)) {
            subject.propose(shape);
        }
    }

    /// The advice for every container that lives.
    pub(crate) fn advice(&self) -> Report {
        let node = self.lock();
        let quotas = quotas(&node.latest.pods, node.live().map(|(row, subject)| (row, subject.member(row))));
        let containers = node.live().map(|(row, subject)| node.report(row, subject, &quotas)).collect();
        Report { objective: OBJECTIVE, containers }
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
        self.turn_to(latest);
        for (row, subject) in self.latest.containers.iter().zip(&mut self.subjects).filter(|(row, _)| row.live) {
            subject.observe(row, length_ns, self.fewest_windows);
            subject.detect(row, &mut self.detector);
        }
        if self.windows.is_multiple_of(EXPORT_EVERY) {
            self.export();
        }
        self.windows += 1;
    }

    /// Lets each subject follow its labels, which outlive restarts.
    fn turn_to(&mut self, latest: Arc<NodeSnapshot>) {
        let before = std::mem::replace(&mut self.latest, latest);
        let (old, new) = (&before.containers, &self.latest.containers);
        let is_same = |(old, new): (&ContainerRow, &ContainerRow)| Arc::ptr_eq(&old.identity, &new.identity);
        if old.len() == new.len() && old.iter().zip(new).all(is_same) {
            return;
        }
        let labels = old.iter().map(|row| &*row.identity.labels);
        let mut known: HashMap<&str, Subject> = labels.zip(std::mem::take(&mut self.subjects)).collect();
        self.subjects = new.iter().map(|row| known.remove(&*row.identity.labels).unwrap_or_default()).collect();
    }

    /// Every container that lives.
    fn live(&self) -> impl Iterator<Item = (&ContainerRow, &Subject)> {
        self.latest.containers.iter().zip(&self.subjects).filter(|(row, _)| row.live)
    }

    fn export(&self) {
        let rows = self.live().filter(|(row, _)| !row.identity.namespace.is_empty());
        let rows = rows.map(|(row, subject)| subject.advised(row, &self.objective)).collect();
        self.metrics.advice().set(rows);
    }

    fn report(&self, row: &ContainerRow, subject: &Subject, quotas: &Quotas<'_>) -> ContainerReport {
        let pod = quotas.get(&(&*row.identity.namespace, &*row.identity.pod)).copied();
        let facts = Facts { pod, ..subject.facts(row, &self.latest.node.kernel.release) };
        ContainerReport {
            namespace: row.identity.namespace.clone(),
            pod: row.identity.pod.clone(),
            container: row.identity.container.clone(),
            limit_cores: facts.limit_cores,
            request_cores: facts.request_cores,
            findings: findings(&facts),
            runtime: facts.runtime,
            cpu: facts.cpu,
            memory: facts.memory,
        }
    }
}
