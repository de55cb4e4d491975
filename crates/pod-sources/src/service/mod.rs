//! The running service: queries the sources when names are needed, and publishes complete indexes.
//!
//! Runs on the caller's tokio runtime. [`Pods`] is the handle for other threads, including the
//! synchronous sampler: reading the index takes no lock, and the service never blocks a reader.

mod asks;
mod empty;
mod exclusive;
mod names;
mod policy;
mod poller;
mod publisher;
mod runtime_pods;
mod runtime_source;
mod schedule;
mod sources;
mod status;
mod supervisor;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use kubepods::model::Pod;
use kubepods::{ExclusiveCpus, PodIndex, Reported};
use tls_client::apiserver::ApiServerConnection;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cause::Cause;
use crate::config::{ConfigError, PodConfig, PodSource};
use crate::source::http::KubeletHttp;
use asks::Asks;
use exclusive::keep_exclusive_cpus;
use policy::keep_policy;
use publisher::PodPublisher;
pub use runtime_source::{CreatedContainer, RuntimeSource, Sandbox};
use sources::Sources;
pub use status::SourceStatus;
use status::Statuses;
use supervisor::Supervisor;

/// Heartbeat, called by a task of the service once per round with the time until the next call is
/// due. It is dropped when the task ends.
pub type Beat = Box<dyn Fn(Duration) + Send>;

/// A task that runs as long as the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Reads the pods.
    Pods,
    /// Reads exclusive CPUs from pod-resources.
    PodResources,
}

/// Starter of the service.
#[derive(Debug)]
pub struct PodService;

/// Handle of the running service, cheap to clone. The service ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Pods {
    shared: Arc<ServiceState>,
    _stop: Arc<DropGuard>,
}

/// State shared by the service's tasks and handles.
#[derive(Debug)]
pub(crate) struct ServiceState {
    index: ArcSwap<PodIndex>,
    publisher: Mutex<PodPublisher>,
    exclusive: ArcSwap<ExclusiveCpus>,
    /// CPU manager policy, as reported by `/configz`.
    policy: ArcSwap<Reported<String>>,
    asks: Mutex<Asks>,
    asked: Notify,
    statuses: Mutex<Statuses>,
    started: Instant,
    /// [`PodConfig::names_after`].
    names_after: Duration,
    /// Start time of the request for the latest list.
    listed_at: Mutex<Option<Instant>>,
    /// UIDs of the pods with an existing cgroup, as reported by the sampler; `None` if none was
    /// ever reported.
    live: Mutex<Option<HashSet<Box<str>>>>,
    /// Whether the pods are known; touched at the end of every attempt.
    progress: watch::Sender<bool>,
    apiserver_requests: Arc<AtomicU64>,
}

impl ServiceState {
    /// Initial state without pods; `is_known` is true if there is no source to wait for.
    fn new(
        statuses: Statuses,
        is_known: bool,
        names_after: Duration,
        apiserver_requests: Arc<AtomicU64>,
    ) -> Self {
        Self {
            index: ArcSwap::default(),
            publisher: Mutex::default(),
            exclusive: ArcSwap::default(),
            policy: ArcSwap::default(),
            asks: Mutex::default(),
            asked: Notify::new(),
            statuses: Mutex::new(statuses),
            started: Instant::now(),
            names_after,
            listed_at: Mutex::default(),
            live: Mutex::default(),
            progress: watch::Sender::new(is_known),
            apiserver_requests,
        }
    }

    /// Whether some of these pods have a cgroup; without reports of cgroups, whether there are any
    /// pods.
    fn any_runs(&self, pods: &[Arc<Pod>]) -> bool {
        let live = lock(&self.live);
        live.as_ref().map_or(!pods.is_empty(), |live| {
            pods.iter().any(|pod| pod.cgroup_names().any(|name| live.contains(name)))
        })
    }

    /// The cause why no source of names has answered for [`PodConfig::names_after`].
    fn names_missing(&self, now: Instant) -> Option<Cause> {
        let since = lock(&self.listed_at).unwrap_or(self.started);
        let cause = lock(&self.statuses).why_no_names()?;
        (now.saturating_duration_since(since) >= self.names_after).then_some(cause)
    }

    /// Wakes tasks that wait for a change. `listed`: whether the attempt returned a list.
    fn attempt_ended(&self, listed: bool) {
        self.progress.send_modify(|known| *known |= listed);
    }
}

impl PodService {
    /// Checks the configuration without starting anything.
    ///
    /// # Errors
    /// [`ConfigError`] for every problem that can be detected before the first connection.
    pub fn validate(config: &PodConfig) -> Result<(), ConfigError> {
        Sources::of(config, &Arc::default()).map(drop)
    }

    /// Starts the service. Returns at once; the first index follows when a source has answered.
    ///
    /// # Errors
    /// Same as [`PodService::validate`]. An unreachable source is not an error: it is retried
    /// forever.
    pub fn start(config: &PodConfig, runtime: &Handle) -> Result<Pods, ConfigError> {
        Self::start_watched(config, runtime, |_| Box::new(|_| {}))
    }

    /// Same as [`PodService::start`]; calls `watch` once for each task that is started.
    ///
    /// # Errors
    /// Same as [`PodService::validate`].
    pub fn start_watched(
        config: &PodConfig,
        runtime: &Handle,
        watch: impl Fn(Task) -> Beat,
    ) -> Result<Pods, ConfigError> {
        let apiserver_requests = Arc::default();
        let mut sources = Sources::of(config, &apiserver_requests)?;
        let statuses = Statuses::of(sources.names());
        let shared = ServiceState::new(
            statuses,
            !sources.can_name(),
            config.names_after,
            apiserver_requests,
        );
        let shared = Arc::new(shared);
        let stop = CancellationToken::new();
        if let Some(socket) = sources.pod_resources.take() {
            let beat = watch(Task::PodResources);
            let task = keep_exclusive_cpus(Arc::clone(&shared), socket, config.poll_interval, beat);
            runtime.spawn(until(stop.clone(), task));
        }
        if sources.can_name() {
            let supervisor =
                Supervisor::new(Arc::clone(&shared), sources, config.poll_interval, runtime);
            runtime.spawn(until(stop.clone(), supervisor.run(watch(Task::Pods))));
        }
        Ok(Pods { shared, _stop: Arc::new(stop.drop_guard()) })
    }
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    stop.run_until_cancelled(task).await;
}

impl Pods {
    /// The latest known pods; empty and with generation 0 before the first answer.
    pub fn index(&self) -> Arc<PodIndex> {
        self.shared.index.load_full()
    }

    /// Exclusive CPUs allocated by the kubelet; empty if pod-resources is not available.
    pub fn exclusive_cpus(&self) -> Arc<ExclusiveCpus> {
        self.shared.exclusive.load_full()
    }

    /// Starts polling the kubelet's `/configz` for its CPU manager policy (needs `nodes/configz`).
    /// Calls `watch` once if a task is started.
    ///
    /// # Errors
    /// Same as [`PodService::validate`].
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
        runtime.spawn(keep_policy(
            Arc::downgrade(&self.shared),
            kubelet,
            config.poll_interval,
            watch(),
        ));
        Ok(())
    }

    /// The kubelet's CPU manager policy, `none` or `static`, as it reports it; failed after two
    /// failed attempts.
    pub fn cpu_manager_policy(&self) -> Arc<Reported<String>> {
        self.shared.policy.load_full()
    }

    /// Reports that a cgroup with this pod UID (or static hash) and container id has no name in the
    /// current index; an empty id requests the pod. Requests the name at once (debounced by 100 ms,
    /// at most twice per second), then at growing delays until it is known. May be called at every
    /// tick for the same cgroup.
    pub fn ask(&self, pod_uid: &str, container_id: &str) {
        if lock(&self.shared.asks).ask(pod_uid, container_id, Instant::now()) {
            self.shared.asked.notify_one();
        }
    }

    /// Requests the pod, which the runtime is creating, without the debounce and at most 50 ms
    /// after the last request.
    fn ask_at_once(&self, pod_uid: &str) {
        if lock(&self.shared.asks).ask_at_once(pod_uid, Instant::now()) {
            self.shared.asked.notify_one();
        }
    }

    /// Requests a list with the current resources of this pod.
    fn ask_again(&self, pod_uid: &str) {
        if lock(&self.shared.asks).ask_again(pod_uid, Instant::now()) {
            self.shared.asked.notify_one();
        }
    }

    /// Cancels the request for the name of this container's cgroup.
    pub fn withdraw(&self, container_id: &str) {
        lock(&self.shared.asks).withdraw(container_id);
    }

    /// Start time of the request for the list behind the current index, or for a later list without
    /// changes; with a live watch, the current time.
    pub fn listed_at(&self) -> Option<Instant> {
        if lock(&self.shared.statuses).has_live_watch() {
            return Some(Instant::now());
        }
        *lock(&self.shared.listed_at)
    }

    /// Reports that the cgroup of the pod with this UID (or static hash) exists or is gone. A pod
    /// whose cgroup exists keeps its name, even if it leaves the list.
    pub fn pod_lives(&self, pod_uid: &str, lives: bool) {
        let mut live = lock(&self.shared.live);
        let live = live.get_or_insert_default();
        if lives {
            live.insert(pod_uid.into());
        } else {
            live.remove(pod_uid);
        }
    }

    /// Status of every source in use, by preference. A socket that does not exist on this node is
    /// omitted, unless it is the only source.
    pub fn status(&self) -> Vec<SourceStatus> {
        lock(&self.shared.statuses).list(SystemTime::now())
    }

    /// Whether the pods are known: some source has answered since the start, or there is no source.
    pub fn is_known(&self) -> bool {
        *self.shared.progress.borrow()
    }

    /// The cause why pods get no names: no source has answered for [`PodConfig::names_after`].
    /// `None` if one answers, or if there is none.
    pub fn names_missing(&self) -> Option<Cause> {
        self.shared.names_missing(Instant::now())
    }

    /// Whether a source of names is configured.
    pub fn has_source(&self) -> bool {
        lock(&self.shared.statuses).has_naming()
    }

    /// Waits until the pods are known ([`Pods::is_known`]).
    pub async fn known(&self) {
        self.until(Self::is_known).await;
    }

    /// Waits until `condition` holds; it is checked now and after every attempt of any source.
    pub async fn until(&self, mut condition: impl FnMut(&Self) -> bool) {
        // The sender is in `shared`, which `self` holds, so the wait cannot fail.
        let _ = self.shared.progress.subscribe().wait_for(|_| condition(self)).await;
    }

    /// A connection to the configured API server, for other uses than pods; its requests are
    /// counted here, too.
    ///
    /// # Errors
    /// Fails if it is not configured outside a pod, or if its CA cannot be read.
    pub fn apiserver(
        &self,
        config: &PodConfig,
    ) -> Result<ApiServerConnection, tls_client::apiserver::ConfigError> {
        ApiServerConnection::new(&config.apiserver, Arc::clone(&self.shared.apiserver_requests))
    }

    /// Number of lists that exceeded the limit since the start; the pods beyond it have no names.
    pub fn cut_lists(&self) -> u64 {
        lock(&self.shared.statuses).cut_lists()
    }

    /// Number of requests sent to the API server since the start.
    pub fn apiserver_requests(&self) -> u64 {
        self.shared.apiserver_requests.load(Ordering::Relaxed)
    }
}

/// Locks even after a panic elsewhere: the data behind these locks is valid between any two
/// statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SourceError, SourceName};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn names_are_missing_once_no_source_has_answered_for_a_minute() {
        let shared = ServiceState::new(
            Statuses::of([SourceName::Kubelet, SourceName::PodResources]),
            false,
            MINUTE,
            Arc::default(),
        );
        let (begin, minute) = (shared.started, MINUTE);
        assert_eq!(shared.names_missing(begin + minute - Duration::from_millis(1)), None);
        assert_eq!(shared.names_missing(begin + minute), Some(Cause::Unreachable));
        let refused =
            SourceError::Forbidden { url: String::new(), answer: String::new(), remedy: "" };
        lock(&shared.statuses).failed(SourceName::Kubelet, &refused);
        assert_eq!(shared.names_missing(begin + minute), Some(Cause::Forbidden));
        lock(&shared.statuses).succeeded(SourceName::PodResources, 0, SystemTime::now());
        assert_eq!(
            shared.names_missing(begin + minute),
            Some(Cause::Forbidden),
            "exclusive CPUs are no names"
        );
        *lock(&shared.listed_at) = Some(begin + minute);
        assert_eq!(shared.names_missing(begin + minute * 2 - Duration::from_millis(1)), None);
        lock(&shared.statuses).succeeded(SourceName::Kubelet, 1, SystemTime::now());
        assert_eq!(shared.names_missing(begin + minute * 9), None);
    }

    #[test]
    fn without_a_source_no_names_are_missing() {
        let shared = ServiceState::new(Statuses::of([]), true, MINUTE, Arc::default());
        assert_eq!(shared.names_missing(shared.started + MINUTE * 2), None);
    }
}
