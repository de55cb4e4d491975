//! The task that chooses the source of the list: a live watch on the Pods API, otherwise polls,
//! otherwise, if enabled, a watch on the API server.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::poller::Poller;
use super::publisher::List;
use super::schedule::{Backoff, jittered};
use super::sources::{Delay, Sources};
use super::{Beat, ServiceState, lock};
use crate::cause::Cause;
use crate::source::apiserver::ApiServer;
use crate::source::body::Listed;
use crate::source::pods_api::PodsApiSocket;
use crate::source::{SourceError, SourceName, Update, Updates};

/// Time between checks for a missing socket.
const ABSENT_RETRY: Duration = Duration::from_secs(30);
/// Duration after which a watch counts as healthy, so that its next failure is treated as the
/// first.
const HEALTHY_WATCH: Duration = Duration::from_secs(60);
/// Maximum time between two rounds, for the task's heartbeat.
const ROUND: Duration = Duration::from_secs(5);
/// Timeout that stands for "never".
const NEVER: Duration = Duration::from_secs(86_400);
/// Maximum number of lists that wait for the supervisor while it polls.
const UPDATE_QUEUE: usize = 4;

/// State of the Pods API watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// No result yet: polling waits for it.
    Pending,
    Up,
    Down,
}

pub(super) struct Supervisor {
    shared: Arc<ServiceState>,
    poller: Poller,
    pods_api: Delivery,
    /// Cause of missing names, as last logged.
    missing: Option<Cause>,
    /// `--pod-source=pods-api`: a missing socket is a failure.
    pods_api_alone: bool,
    apiserver: Option<Fallback>,
    updates: mpsc::Receiver<Update>,
    sender: mpsc::Sender<Update>,
    /// The watches, which end with the supervisor.
    watches: JoinSet<()>,
}

/// The API server as the fallback source.
struct Fallback {
    server: Arc<ApiServer>,
    /// Its watch while in use; ends on drop.
    watch: Option<JoinSet<()>>,
    /// Time at which to start it.
    due: Instant,
    delay: Delay,
}

impl Supervisor {
    pub(super) fn new(
        shared: Arc<ServiceState>,
        sources: Sources,
        interval: Duration,
        runtime: &Handle,
    ) -> Self {
        let (sender, updates) = mpsc::channel(UPDATE_QUEUE);
        let mut supervisor = Self {
            shared,
            pods_api_alone: sources.polled.is_empty(),
            poller: Poller::new(sources.polled, interval),
            pods_api: Delivery::Down,
            missing: None,
            apiserver: sources.apiserver.map(|(server, delay)| Fallback::new(server, delay)),
            updates,
            sender,
            watches: JoinSet::new(),
        };
        if let Some(socket) = sources.pods_api {
            supervisor.pods_api = Delivery::Pending;
            let updates = supervisor.updates_of(SourceName::PodsApi);
            supervisor.watches.spawn_on(keep_watching(socket, updates), runtime);
        }
        supervisor
    }

    /// Runs forever.
    pub(super) async fn run(mut self, beat: Beat) {
        loop {
            beat(ROUND);
            self.warn_if_names_are_missing();
            let never = Instant::now() + NEVER;
            let poll_due = self.poll_due().unwrap_or(never);
            let fallback_due = self.apiserver.as_ref().and_then(Fallback::due).unwrap_or(never);
            tokio::select! {
                Some(update) = self.updates.recv() => self.take(update),
                () = sleep_until(poll_due.into()) => self.poll().await,
                () = sleep_until(fallback_due.into()) => self.begin_fallback(),
                () = self.shared.asked.notified() => {}
                () = sleep(ROUND) => {}
            }
        }
    }

    /// Logs once that the agent continues without names, with the remedy.
    fn warn_if_names_are_missing(&mut self) {
        let missing = self.shared.names_missing(Instant::now());
        if let (Some(cause), None) = (missing, self.missing) {
            tracing::warn!(
                reason = cause.reason(),
                "pods have no names: series carry pod UIDs and container IDs"
            );
        }
        self.missing = missing;
    }

    fn poll_due(&self) -> Option<Instant> {
        if self.pods_api == Delivery::Down { self.poller.due(&self.shared) } else { None }
    }

    async fn poll(&mut self) {
        let begun = Instant::now();
        if let Some(Listed { pods, is_cut }) = self.poller.poll(&self.shared).await {
            let list = List { pods, taken: begun, is_complete: !is_cut };
            lock(&self.shared.publisher).publish(&self.shared, list);
            self.local_source_answered();
            self.shared.attempt_ended(true);
        } else {
            self.shared.attempt_ended(false);
        }
    }

    fn take(&mut self, update: Update) {
        let is_pods_api = update.source == SourceName::PodsApi;
        if is_pods_api {
            self.pods_api = if update.outcome.is_ok() { Delivery::Up } else { Delivery::Down };
        } else if !self.apiserver.as_ref().is_some_and(Fallback::is_in_use) {
            // Sent before a local source was back.
            return;
        }
        let answered = update.outcome.is_ok();
        match update.outcome {
            Ok(Listed { pods, is_cut }) => {
                let mut statuses = lock(&self.shared.statuses);
                if is_cut {
                    statuses.list_was_cut(update.source, pods.len());
                }
                statuses.succeeded(update.source, pods.len(), SystemTime::now());
                drop(statuses);
                let list = List { pods, taken: Instant::now(), is_complete: !is_cut };
                lock(&self.shared.publisher).publish(&self.shared, list);
                if is_pods_api {
                    self.local_source_answered();
                }
            }
            Err(SourceError::Absent { .. }) if !self.pods_api_alone => {
                lock(&self.shared.statuses).absent(update.source);
            }
            Err(error) => lock(&self.shared.statuses).failed(update.source, &error),
        }
        self.shared.attempt_ended(answered);
    }

    fn begin_fallback(&mut self) {
        let updates = self.updates_of(SourceName::ApiServer);
        if let Some(fallback) = &mut self.apiserver {
            fallback.begin(updates);
        }
    }

    fn local_source_answered(&mut self) {
        if let Some(fallback) = &mut self.apiserver
            && fallback.end()
        {
            lock(&self.shared.statuses).stood_down(SourceName::ApiServer);
        }
    }

    fn updates_of(&self, source: SourceName) -> Updates {
        Updates { source, sender: self.sender.clone() }
    }
}

impl Fallback {
    fn new(server: ApiServer, delay: Delay) -> Self {
        Self { server: Arc::new(server), watch: None, due: due(delay), delay }
    }

    fn due(&self) -> Option<Instant> {
        (!self.is_in_use()).then_some(self.due)
    }

    fn is_in_use(&self) -> bool {
        self.watch.is_some()
    }

    fn begin(&mut self, updates: Updates) {
        let server = Arc::clone(&self.server);
        let mut watch = JoinSet::new();
        watch.spawn(async move { server.watch(&updates).await });
        self.watch = Some(watch);
    }

    /// Postpones the next start and ends the watch; returns whether there was one.
    fn end(&mut self) -> bool {
        self.due = due(self.delay);
        self.watch.take().is_some()
    }
}

/// End of a delay that begins now.
fn due(delay: Delay) -> Instant {
    Instant::now() + delay.length(fastrand::f64())
}

/// Watches the Pods API forever, with a backoff between failures.
async fn keep_watching(socket: PodsApiSocket, updates: Updates) {
    let mut backoff = Backoff::default();
    loop {
        let begun = Instant::now();
        let error = socket.watch(&updates).await;
        let is_absent = matches!(error, SourceError::Absent { .. });
        updates.failed(error).await;
        if is_absent {
            sleep(jittered(ABSENT_RETRY, fastrand::f64())).await;
            continue;
        }
        if begun.elapsed() > HEALTHY_WATCH {
            backoff.succeeded();
        }
        backoff.failed(Instant::now(), fastrand::f64());
        sleep_until(backoff.until().expect("set by the failure just noted").into()).await;
    }
}
