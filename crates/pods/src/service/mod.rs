//! The running service: asks the sources when names are needed and publishes whole indexes.
//!
//! It lives on the caller's tokio runtime. [`Pods`] is its handle for everybody else, the synchronous sampler included:
//! reading the index takes no lock, and nothing here ever blocks a reader.

mod asks;
mod empty;
mod exclusive;
mod policy;
mod poller;
mod publisher;
mod schedule;
mod sources;
mod status;
mod supervisor;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cause::Cause;
use crate::config::{ConfigError, PodConfig, PodSource};
use crate::exclusive::ExclusiveCpus;
use crate::index::PodIndex;
use crate::model::Pod;
use crate::source::connection::ApiServerConnection;
use crate::source::http::KubeletHttp;
use asks::Asks;
use exclusive::keep_exclusive_cpus;
use policy::keep_policy;
use sources::Sources;
pub use status::SourceStatus;
use status::Statuses;
use supervisor::Supervisor;

/// How long pods may be without names before the agent goes on without.
const NAMES_AFTER: Duration = Duration::from_secs(60);

/// Called by a task of the service once a round, with the time in which the next one is due. It is dropped when the task
/// ends.
pub type Beat = Box<dyn Fn(Duration) + Send>;

/// A task of the service that works for as long as the service lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Asks for the pods.
    Pods,
    /// Asks pod-resources for exclusive CPUs.
    PodResources,
}

/// Starts the service.
#[derive(Debug)]
pub struct PodService;

/// Handle of the running service, cheap to clone. The service ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Pods {
    shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

/// What the service's tasks and its handles have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    index: ArcSwap<PodIndex>,
    exclusive: ArcSwap<ExclusiveCpus>,
    /// CPU manager policy, as `/configz` says it.
    policy: ArcSwapOption<Box<str>>,
    asks: Mutex<Asks>,
    asked: Notify,
    statuses: Mutex<Statuses>,
    started: Instant,
    /// When the request for the latest list began.
    listed_at: Mutex<Option<Instant>>,
    /// UIDs of the pods whose cgroups are there, as the sampler sees them; `None` where nobody has reported any.
    live: Mutex<Option<HashSet<Box<str>>>>,
    /// Whether the pods are known; touched at the end of every attempt.
    progress: watch::Sender<bool>,
    apiserver_requests: Arc<AtomicU64>,
}

impl Shared {
    /// Nothing is known yet; `is_known` where there is nothing to know.
    fn new(statuses: Statuses, is_known: bool, apiserver_requests: Arc<AtomicU64>) -> Self {
        Self {
            index: ArcSwap::default(),
            exclusive: ArcSwap::default(),
            policy: ArcSwapOption::default(),
            asks: Mutex::default(),
            asked: Notify::new(),
            statuses: Mutex::new(statuses),
            started: Instant::now(),
            listed_at: Mutex::default(),
            live: Mutex::default(),
            progress: watch::Sender::new(is_known),
            apiserver_requests,
        }
    }

    /// Whether some of these pods have a cgroup; where nobody reports cgroups, whether there are any pods.
    fn any_runs(&self, pods: &[Arc<Pod>]) -> bool {
        let live = lock(&self.live);
        live.as_ref()
            .map_or(!pods.is_empty(), |live| pods.iter().any(|pod| pod.cgroup_names().any(|name| live.contains(name))))
    }

    /// Why no source of names has answered for [`NAMES_AFTER`].
    fn names_missing(&self, now: Instant) -> Option<Cause> {
        let since = lock(&self.listed_at).unwrap_or(self.started);
        let cause = lock(&self.statuses).why_no_names()?;
        (now.saturating_duration_since(since) >= NAMES_AFTER).then_some(cause)
    }

    /// Wakes those who wait for something to have changed. `listed`: the attempt has brought a list.
    fn attempt_ended(&self, listed: bool) {
        self.progress.send_modify(|known| *known |= listed);
    }
}

impl PodService {
    /// Checks the configuration without starting anything.
    ///
    /// # Errors
    /// [`ConfigError`] for whatever can be known to be wrong before the first connection.
    pub fn validate(config: &PodConfig) -> Result<(), ConfigError> {
        Sources::of(config, &Arc::default()).map(drop)
    }

    /// Checks where the API server is, for other purposes than pods.
    ///
    /// # Errors
    /// It is not configured and this is no pod, or its CA or token cannot be read.
    pub fn validate_apiserver(config: &PodConfig) -> Result<(), ConfigError> {
        ApiServerConnection::new(config, Arc::default())?.validate()
    }

    /// Starts asking. Returns at once; the first index comes when a source has answered.
    ///
    /// # Errors
    /// As [`PodService::validate`]. A source that cannot be reached is no error: it is retried for ever.
    pub fn start(config: &PodConfig, runtime: &Handle) -> Result<Pods, ConfigError> {
        Self::start_watched(config, runtime, |_| Box::new(|_| {}))
    }

    /// As [`PodService::start`]; `watch` is called once for each task that is started.
    ///
    /// # Errors
    /// As [`PodService::validate`].
    pub fn start_watched(
        config: &PodConfig,
        runtime: &Handle,
        watch: impl Fn(Task) -> Beat,
    ) -> Result<Pods, ConfigError> {
        let apiserver_requests = Arc::default();
        let mut sources = Sources::of(config, &apiserver_requests)?;
        let statuses = Statuses::of(sources.names());
        let shared = Arc::new(Shared::new(statuses, !sources.can_name(), apiserver_requests));
        let stop = CancellationToken::new();
        if let Some(socket) = sources.pod_resources.take() {
            let beat = watch(Task::PodResources);
            let task = keep_exclusive_cpus(Arc::clone(&shared), socket, config.poll_interval, beat);
            runtime.spawn(until(stop.clone(), task));
        }
        if sources.can_name() {
            let supervisor = Supervisor::new(Arc::clone(&shared), sources, config.poll_interval, runtime);
            runtime.spawn(until(stop.clone(), supervisor.run(watch(Task::Pods))));
        }
        Ok(Pods { shared, _stop: Arc::new(stop.drop_guard()) })
    }
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    stop.run_until_cancelled(task).await;
}

impl Pods {
    /// The pods as last known; empty and of generation 0 before the first answer.
    pub fn index(&self) -> Arc<PodIndex> {
        self.shared.index.load_full()
    }

    /// The CPUs that the kubelet has given to containers for themselves; empty where pod-resources is not available.
    pub fn exclusive_cpus(&self) -> Arc<ExclusiveCpus> {
        self.shared.exclusive.load_full()
    }

    /// Asks the kubelet's `/configz` for its CPU manager policy from now on (needs `nodes/configz`). `watch` is called
    /// once where a task is started for that.
    ///
    /// # Errors
    /// As [`PodService::validate`].
    pub fn ask_cpu_manager_policy(
        &self,
        config: &PodConfig,
        runtime: &Handle,
        watch: impl FnOnce() -> Beat,
    ) -> Result<(), ConfigError> {
        let kubelet = match (config.source, &config.readonly_url) {
            (PodSource::None, _) => return Ok(()),
            (PodSource::ReadOnly, Some(url)) => KubeletHttp::read_only(config, url)?,
            _ => KubeletHttp::secure(config)?,
        };
        runtime.spawn(keep_policy(Arc::downgrade(&self.shared), kubelet, config.poll_interval, watch()));
        Ok(())
    }

    /// The kubelet's CPU manager policy as it said last, `none` or `static`; `None` before the first answer and after two
    /// attempts without one.
    pub fn cpu_manager_policy(&self) -> Option<String> {
        self.shared.policy.load().as_deref().map(ToString::to_string)
    }

    /// Says that a cgroup with this pod UID (or static hash) and container id has no name in the present index; an
    /// empty id asks for the pod. Asks the source at once (debounced by 100 ms, at most twice a second) and goes on
    /// asking, ever more rarely, until the name is known. May be called at every tick for the same cgroup.
    pub fn ask(&self, pod_uid: &str, container_id: &str) {
        if lock(&self.shared.asks).ask(pod_uid, container_id, Instant::now()) {
            self.shared.asked.notify_one();
        }
    }

    /// Says that nobody wants the name of this container's cgroup any more.
    pub fn withdraw(&self, container_id: &str) {
        lock(&self.shared.asks).withdraw(container_id);
    }

    /// When the request for the list behind the present index began, or for a later list that said the same; while a
    /// watch lives, now.
    pub fn listed_at(&self) -> Option<Instant> {
        if lock(&self.shared.statuses).has_live_watch() {
            return Some(Instant::now());
        }
        *lock(&self.shared.listed_at)
    }

    /// Says that the cgroup of the pod of this UID (or static hash) is there, or has gone. A pod whose cgroup is there
    /// keeps its name, whatever a list says.
    pub fn pod_lives(&self, pod_uid: &str, lives: bool) {
        let mut live = lock(&self.shared.live);
        let live = live.get_or_insert_default();
        if lives {
            live.insert(pod_uid.into());
        } else {
            live.remove(pod_uid);
        }
    }

    /// The state of every source in use, in the order of preference. A socket that this node does not have is not
    /// among them, unless it is the only source.
    pub fn status(&self) -> Vec<SourceStatus> {
        lock(&self.shared.statuses).list(SystemTime::now())
    }

    /// Whether the pods are known: some source has answered since the start, or there is none to answer.
    pub fn is_known(&self) -> bool {
        *self.shared.progress.borrow()
    }

    /// Why pods get no names: no source has answered for a minute. `None` while one answers, or where there is none.
    pub fn names_missing(&self) -> Option<Cause> {
        self.shared.names_missing(Instant::now())
    }

    /// Whether names are wanted.
    pub fn has_source(&self) -> bool {
        lock(&self.shared.statuses).has_naming()
    }

    /// Waits until the pods are known ([`Pods::is_known`]).
    pub async fn known(&self) {
        self.until(Self::is_known).await;
    }

    /// Waits until `condition` holds; it is looked at now and after every attempt of any source.
    pub async fn until(&self, mut condition: impl FnMut(&Self) -> bool) {
        // The sender lives in `shared`, which `self` holds: the wait cannot fail.
        let _ = self.shared.progress.subscribe().wait_for(|_| condition(self)).await;
    }

    /// The API server of the configuration, for other purposes than pods; what leaves is counted here all the same.
    ///
    /// # Errors
    /// When it is not configured and this is no pod, or its CA cannot be read.
    pub fn apiserver(&self, config: &PodConfig) -> Result<ApiServerConnection, ConfigError> {
        ApiServerConnection::new(config, Arc::clone(&self.shared.apiserver_requests))
    }

    /// Lists that were longer than the limit, ever; the pods behind it have no names.
    pub fn cut_lists(&self) -> u64 {
        lock(&self.shared.statuses).cut_lists()
    }

    /// Requests that this process has sent to the API server, ever.
    pub fn apiserver_requests(&self) -> u64 {
        self.shared.apiserver_requests.load(Ordering::Relaxed)
    }
}

/// Locks and goes on after a panic elsewhere: everything behind these locks is valid between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SourceError, SourceName};

    #[test]
    fn names_are_missing_once_no_source_has_answered_for_a_minute() {
        let shared = Shared::new(Statuses::of([SourceName::Kubelet, SourceName::PodResources]), false, Arc::default());
        let (begin, minute) = (shared.started, NAMES_AFTER);
        assert_eq!(shared.names_missing(begin + minute - Duration::from_millis(1)), None);
        assert_eq!(shared.names_missing(begin + minute), Some(Cause::Unreachable));
        let refused = SourceError::Forbidden { url: String::new(), answer: String::new(), remedy: "" };
        lock(&shared.statuses).failed(SourceName::Kubelet, &refused);
        assert_eq!(shared.names_missing(begin + minute), Some(Cause::Forbidden));
        lock(&shared.statuses).succeeded(SourceName::PodResources, 0, SystemTime::now());
        assert_eq!(shared.names_missing(begin + minute), Some(Cause::Forbidden), "exclusive CPUs are no names");
        *lock(&shared.listed_at) = Some(begin + minute);
        assert_eq!(shared.names_missing(begin + minute * 2 - Duration::from_millis(1)), None);
        lock(&shared.statuses).succeeded(SourceName::Kubelet, 1, SystemTime::now());
        assert_eq!(shared.names_missing(begin + minute * 9), None);
    }

    #[test]
    fn without_a_source_no_names_are_missing() {
        let shared = Shared::new(Statuses::of([]), true, Arc::default());
        assert_eq!(shared.names_missing(shared.started + NAMES_AFTER * 2), None);
    }
}
