//! The whole agent: pods, sampler, endpoint. Both `run` and `demo` start it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use advisor::{Advisor, GcReader};
use anyhow::Context;
use cgroup_tree::KubepodsTree;
use cgroupfs::{Hierarchy, node};
use creation::{Placing, Users, variables};
use endpoint::{Auth, Identity, Parts, Serving, Sources, Ui};
use metrics::{AgentMetrics, Build, Exposition};
use pinning::{Admission, PinningThread};
use pod_sources::{PodService, Pods};
use reporting::{EventSender, EventTask};
use sampler::{BulkSource, Sampler};
use snapshot::{NodeGc, NodeSnapshot, NodeWaits, Published};
use state_dir::ActingMode;
use timeline::Timeline;
use tokio::sync::{Notify, oneshot};
use watchdog::errors::chain;
use watchdog::{JoinedThread, Part, Watchdog, Worker, keep_running};
use yielding::Resizes;

use crate::check::{Checked, check};
use crate::claims::Claims;
use crate::config::{Config, GcMode, NriMode};
use crate::exit::Failure;
use crate::parts::RunningParts;
use crate::status::LiveStatus;
use crate::ui::History;
use crate::{condition, recorder, sampling, trace, verdicts};

/// The running agent. When it is dropped, its parts stop; pinned pods stay as they are, and settings
/// of best-effort pods are restored.
pub(crate) struct Agent {
    parts: RunningParts,
    sampler_ended: oneshot::Receiver<()>,
    /// One for each part with settings that a reload can change.
    reloads: Vec<Reload>,
    /// Address of the endpoint; the configured one if there is no endpoint.
    address: SocketAddr,
    #[cfg_attr(not(feature = "demo"), expect(dead_code, reason = "for the demo"))]
    published: Published<NodeSnapshot>,
    #[cfg_attr(not(feature = "demo"), expect(dead_code, reason = "for the demo"))]
    pods: Pods,
    #[cfg_attr(not(feature = "top"), expect(dead_code, reason = "for the view"))]
    advisor: Advisor,
    timeline: Option<Timeline>,
}

/// Applies the settings of one part that can change at run time.
type Reload = Box<dyn Fn(&Config) + Send + Sync>;

impl Agent {
    /// Starts everything. Opens the port first, so that an error there is reported before anything
    /// runs.
    ///
    /// # Errors
    /// The port is in use, there is no cgroup hierarchy, or the configuration of the pod sources is
    /// invalid.
    pub(crate) async fn start(config: &Config) -> Result<Self, Failure> {
        Self::start_with(config, true).await
    }

    /// Starts only the parts that measure, for a process beside an agent: nothing listens, and
    /// nothing on the node is changed, whatever the configuration says.
    ///
    /// # Errors
    /// See [`Agent::start`].
    pub(crate) async fn start_reading(config: &Config) -> Result<Self, Failure> {
        Self::start_with(&config.reading_only(), false).await
    }

    async fn start_with(config: &Config, is_agent: bool) -> Result<Self, Failure> {
        let Checked { hierarchy, identity } = check(config)?;
        let identity = identity.map(Arc::new);
        let listener = is_agent.then(|| bind(config.options.listen.0)).transpose()?;
        let address = listener.as_ref().map(TcpListener::local_addr).transpose();
        let address = address.context("cannot read the port of the listening socket")?;
        let watchdog = Watchdog::new();
        let pods = start_pods(config, &watchdog)?;
        let auth = config.options.metrics_auth.then(|| auth(config, &pods)).transpose()?;
        let metrics = Arc::new(AgentMetrics::new(build()));
        log_start(config, &hierarchy);
        let tree = sampling::tree(config, &hierarchy);
        let mut parts = RunningParts::default();
        let events = start_events(config, &pods, &metrics, &watchdog)?;
        let sender = events.as_ref().map(EventTask::sender);
        parts.add(events);
        let shared = StartContext {
            config,
            hierarchy,
            tree,
            pods,
            metrics,
            watchdog,
            events: sender,
            resizes: Resizes::default(),
        };

        let admission = crate::pinning::admission(config)?;
        let pinning = crate::pinning::start(&shared, admission.clone())?;
        let reloads = reloads(identity.clone(), pinning.as_ref());
        parts.add(pinning);
        let mut sampler = shared.sampler()?;
        let (published, waits, gc) = (sampler.published(), sampler.waits(), sampler.gc());
        let (counters, arriving) = mpsc::channel();
        sampler.collect_from(arriving);
        parts.add(shared.start_trace(&published, &waits, counters).await?);
        let reading = shared.start_reading_gc(&published, gc);
        parts.add(reading.context("cannot start the thread that reads garbage collection")?);
        let history = History::start(config, &published, &shared.watchdog);
        let timeline = history.as_ref().map(History::timeline);
        let recording = recorder::start(config, history.as_ref(), &shared.metrics)
            .context("cannot start the thread that records")?;
        parts.add(recording);
        let sampling = shared.start_sampling(sampler, history.as_ref())?;
        parts.add(sampling.running);
        let advisor = shared.start_advising(&published, sampling.is_published, &mut parts)?;
        parts.add(condition::start(&shared, &published, &advisor)?);
        parts.add_task(verdicts::start(
            &shared,
            &published,
            sampling.is_judged,
            &advisor,
            timeline.clone(),
        ));
        parts.add(shared.start_creation(&advisor, admission)?);
        let ui = history.as_ref().and_then(|history| history.ui(config, build()));
        parts.add(history);
        if let Some(listener) = listener {
            let sources = shared.sources(&published, advisor.clone());
            parts.add_endpoint(shared.serve(listener, identity, auth, sources, ui)?);
        }
        if is_agent {
            let (advisor, timeline) = (advisor.clone(), timeline.clone());
            parts.add(crate::best_effort::start(&shared, &published, advisor, timeline)?);
        }
        // Last, and so the first that stops: the other parts are then meant to end.
        parts.add(shared.start_checks(waits)?);
        Ok(Self {
            parts,
            sampler_ended: sampling.ended,
            reloads,
            address: address.unwrap_or(config.options.listen.0),
            published,
            pods: shared.pods,
            advisor,
            timeline,
        })
    }

    /// Address of the endpoint.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The advice on the containers.
    #[cfg(feature = "top")]
    pub(crate) fn advisor(&self) -> &Advisor {
        &self.advisor
    }

    /// The last ten minutes, for this process; `None` with `--ui=off`.
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        self.timeline.clone()
    }

    /// Snapshots published by the sampler.
    #[cfg(feature = "demo")]
    pub(crate) fn published(&self) -> Published<NodeSnapshot> {
        self.published.clone()
    }

    /// The known pods.
    #[cfg(feature = "demo")]
    pub(crate) fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Applies the settings that can change at run time: the certificate and the profiles. Tokens
    /// are reread whenever their files change.
    pub(crate) fn reload(&self, config: &Config) {
        self.reloads.iter().for_each(|reload| reload(config));
        tracing::info!(
            "SIGHUP: reloaded the certificate and profiles; other options need a restart"
        );
    }

    /// Returns when the sampler's thread has ended unexpectedly.
    pub(crate) async fn failed(&mut self) {
        let _ = (&mut self.sampler_ended).await;
    }

    /// Stops everything within a second.
    pub(crate) async fn drain(self) {
        self.parts.stop().await;
    }
}

/// Values that the parts of the agent share while they start.
pub(crate) struct StartContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) hierarchy: Hierarchy,
    /// Tree of the cpu controller's hierarchy.
    pub(crate) tree: Arc<KubepodsTree>,
    pub(crate) pods: Pods,
    pub(crate) metrics: Arc<AgentMetrics>,
    pub(crate) watchdog: Watchdog,
    /// `None` without `--events`.
    pub(crate) events: Option<EventSender>,
    /// Bursts in force, for the hook of the container runtime.
    pub(crate) resizes: Resizes,
}

/// The sampler's thread.
struct Sampling {
    running: JoinedThread,
    /// Closed when the thread ends, for any reason.
    ended: oneshot::Receiver<()>,
    /// Notified after each tick: for the advice, and for the verdicts.
    is_published: Arc<Notify>,
    is_judged: Arc<Notify>,
}

impl StartContext<'_> {
    fn sampler(&self) -> anyhow::Result<Sampler> {
        let config = sampling::sampler_config(self.config, self.hierarchy.clone());
        Sampler::on(&self.tree, config, Box::new(self.pods.clone()))
            .context("cannot set up the sampler")
    }

    async fn start_trace(
        &self,
        published: &Published<NodeSnapshot>,
        waits: &Published<NodeWaits>,
        counters: mpsc::Sender<BulkSource>,
    ) -> Result<Option<Worker>, Failure> {
        let wiring = sched_trace::Wiring {
            hierarchy: self.hierarchy.clone(),
            tree: Some(Arc::clone(&self.tree)),
            published: published.clone(),
            slot: waits.clone(),
            watchdog: self.watchdog.clone(),
        };
        trace::start(self.config, wiring, Arc::clone(&self.metrics), counters).await
    }

    fn start_sampling(
        &self,
        sampler: Sampler,
        history: Option<&History>,
    ) -> anyhow::Result<Sampling> {
        let (alive, ended) = oneshot::channel::<()>();
        let [is_published, is_judged] = [(); 2].map(|()| Arc::new(Notify::new()));
        let (metrics, published) = (Arc::clone(&self.metrics), Arc::clone(&is_published));
        let judged = Arc::clone(&is_judged);
        let for_history = history.map(History::is_published);
        let beat = self.watchdog.watch(Part::Sampler, self.config.options.sample_interval.0);
        let running = sampler::spawn(sampler, move |report| {
            // Dropped with this closure when the thread ends.
            let _ = &alive;
            metrics.observe_tick(report.lateness, report.duration);
            judged.notify_one();
            published.notify_one();
            if let Some(history) = &for_history {
                history.notify_one();
            }
            beat.beat(report.interval);
        });
        let running = running.context("cannot start the sampler's thread")?;
        Ok(Sampling { running, ended, is_published, is_judged })
    }

    /// Starts the thread that samples arrivals, and the task that computes the advice.
    fn start_advising(
        &self,
        published: &Published<NodeSnapshot>,
        is_published: Arc<Notify>,
        parts: &mut RunningParts,
    ) -> anyhow::Result<Advisor> {
        let options = &self.config.options;
        let metrics = Arc::clone(&self.metrics);
        let advisor = Advisor::new(options.proc_root.clone(), metrics, options.advice_after.0);
        let arrivals = self.start_arrivals(advisor.clone());
        parts.add(arrivals.context("cannot start the thread that samples arrivals")?);
        let beat = self.watchdog.watch(Part::Advice, advisor::ROUND);
        let follow =
            advisor.clone().follow(published.clone(), is_published, move |every| beat.beat(every));
        parts.add_task(tokio::spawn(follow));
        Ok(advisor)
    }

    /// Starts the plugin of the container runtime, unless it is off.
    fn start_creation(
        &self,
        advisor: &Advisor,
        admission: Option<Admission>,
    ) -> anyhow::Result<Option<JoinedThread>> {
        let options = &self.config.options;
        if options.nri == NriMode::Off {
            return Ok(None);
        }
        let injector = |rules| {
            let online_cpus = online_cpus(&options.sys_root);
            let (pods, metrics) = (self.pods.clone(), Arc::clone(&self.metrics));
            let injector =
                variables::injector(rules, online_cpus, &pods, advisor, Arc::clone(&metrics));
            let injector = Arc::new(Mutex::new(injector));
            let (advisor, beat) =
                (advisor.clone(), self.watchdog.watch(Part::Injection, variables::ROUND));
            let beat = move |every| beat.beat(every);
            let injected = Arc::downgrade(&injector);
            tokio::spawn(variables::follow(injected, pods, advisor, metrics, beat));
            injector
        };
        let users = Users {
            source: self.pods.runtime_source(&self.config.pods),
            injector: self.config.injection.clone().map(injector),
            resizes: (options.burst == ActingMode::Enforce).then(|| self.resizes.clone()),
            placing: admission.map(|admission| Placing::new(self.pods.clone(), admission)),
        };
        creation::start(users, &options.nri_socket, &self.metrics, &self.watchdog).map(Some)
    }

    fn start_arrivals(&self, advisor: Advisor) -> std::io::Result<Worker> {
        let (metrics, hierarchy) = (Arc::clone(&self.metrics), self.hierarchy.clone());
        let panicked = move || metrics.subsystem_restarted(Part::ArrivalSampler.as_str());
        let beat = self.watchdog.watch(Part::ArrivalSampler, advisor::ROUND);
        Worker::spawn("arrivals", move |stopped| {
            let beat = || beat.beat(advisor::ROUND);
            let sample = || advisor::sample_arrivals(&advisor, &hierarchy, stopped, beat);
            keep_running(stopped, panicked, sample);
        })
    }

    /// Starts the thread that reads garbage collection, unless it is off.
    fn start_reading_gc(
        &self,
        published: &Published<NodeSnapshot>,
        slot: Published<NodeGc>,
    ) -> std::io::Result<Option<Worker>> {
        if self.config.options.gc == GcMode::Off {
            return Ok(None);
        }
        let (metrics, published) = (Arc::clone(&self.metrics), published.clone());
        let proc_root = self.config.options.proc_root.clone();
        let panicked = move || metrics.subsystem_restarted(Part::GarbageCollection.as_str());
        let beat = self.watchdog.watch(Part::GarbageCollection, advisor::ROUND);
        let worker = Worker::spawn("gc", move |stopped| {
            let beat = || beat.beat(advisor::ROUND);
            let read = || {
                let mut reader = GcReader::new(proc_root.clone());
                advisor::read_collections(&mut reader, &published, &slot, stopped, beat);
            };
            keep_running(stopped, panicked, read);
        });
        worker.map(Some)
    }

    fn start_checks(&self, waits: Published<NodeWaits>) -> anyhow::Result<Worker> {
        let mut claims = Claims::new(Arc::clone(&self.metrics), waits);
        let checks = watchdog::start_checks(self.watchdog.clone(), move |watched, silent| {
            claims.update(watched, silent);
        });
        checks.context("cannot start the watchdog's thread")
    }

    /// Serves on the open port.
    fn serve(
        &self,
        listener: TcpListener,
        identity: Option<Arc<Identity>>,
        auth: Option<Auth>,
        sources: Sources,
        ui: Option<Ui>,
    ) -> anyhow::Result<Serving> {
        let beat = self.watchdog.watch(Part::Http, endpoint::ROUND);
        let serving = Serving::start(Parts {
            listener,
            identity,
            auth,
            cadvisor: self.config.options.cadvisor_metrics,
            allowed_hosts: self.config.options.allowed_hosts(),
            sources,
            new_exposition: new_exposition(self.config),
            interval: self.config.options.sample_interval.0,
            ui,
            beat: Box::new(move |every| beat.beat(every)),
        });
        serving.context("cannot start the endpoint's thread")
    }

    fn sources(&self, published: &Published<NodeSnapshot>, advisor: Advisor) -> Sources {
        Sources {
            published: published.clone(),
            metrics: Arc::clone(&self.metrics),
            advice: Arc::new(move || advisor.advice()),
            status: Arc::new(LiveStatus {
                pods: self.pods.clone(),
                metrics: Arc::clone(&self.metrics),
                watchdog: self.watchdog.clone(),
            }),
        }
    }
}

/// Reloads of the certificate and of pinning's profiles.
fn reloads(identity: Option<Arc<Identity>>, pinning: Option<&PinningThread>) -> Vec<Reload> {
    let identity = identity.map(|identity| -> Reload { Box::new(move |_| identity.reload()) });
    let profiles = pinning.map(|pinning| -> Reload {
        let profiles = pinning.profiles();
        // Fails only if the thread has ended.
        Box::new(move |config| drop(profiles.send(config.pinning.profiles.clone())))
    });
    identity.into_iter().chain(profiles).collect()
}

/// Number of online CPUs; `None` if it cannot be read.
pub(crate) fn online_cpus(sys_root: &Path) -> Option<u64> {
    let online = node::cpu_list(sys_root, "online").ok()?;
    Some(online.len() as u64)
}

fn build() -> Build<'static> {
    Build { version: env!("CARGO_PKG_VERSION"), revision: console::REVISION }
}

fn new_exposition(config: &Config) -> Box<dyn Fn() -> Exposition + Send> {
    let (max_series, families) = (config.options.max_series, config.selection.clone());
    let cadvisor = config.cadvisor.clone();
    Box::new(move || {
        Exposition::with_selection(max_series, families.clone()).with_cadvisor_groups(&cadvisor)
    })
}

fn start_pods(config: &Config, watchdog: &Watchdog) -> Result<Pods, Failure> {
    let watch = |task| -> pod_sources::Beat {
        let (part, every) = match task {
            pod_sources::Task::Pods => (Part::Pods, config.pods.request_timeout),
            pod_sources::Task::PodResources => (Part::PodResources, config.pods.poll_interval),
        };
        let beat = watchdog.watch(part, every);
        Box::new(move |every| beat.beat(every))
    };
    PodService::start_watched(&config.pods, &tokio::runtime::Handle::current(), watch)
        .map_err(|error| Failure::config(chain(&error)))
}

/// Starts the publisher of Kubernetes Events, with `--events`.
fn start_events(
    config: &Config,
    pods: &Pods,
    metrics: &Arc<AgentMetrics>,
    watchdog: &Watchdog,
) -> Result<Option<EventTask>, Failure> {
    if !config.options.events {
        return Ok(None);
    }
    let failed =
        |error: &dyn std::error::Error| Failure::config(format!("--events: {}", chain(error)));
    let connection = pods.apiserver(&config.pods).map_err(|error| failed(&error))?;
    let node = config.pods.node_name.clone().unwrap_or_else(|| "unknown".to_owned());
    let events = EventTask::start(&connection, node, Arc::clone(metrics), watchdog);
    events.map(Some).map_err(|error| failed(&error))
}

/// The reviewer of readers of the metrics.
fn auth(config: &Config, pods: &Pods) -> Result<Auth, Failure> {
    let failed = |error: &dyn std::error::Error| {
        Failure::config(format!("--metrics-auth: {}", chain(error)))
    };
    let connection = pods.apiserver(&config.pods).map_err(|error| failed(&error))?;
    Auth::new(&connection).map_err(|error| failed(&error))
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    endpoint::listen(address).map_err(|error| Failure::unavailable(error.to_string()))
}

fn log_start(config: &Config, hierarchy: &Hierarchy) {
    let version = hierarchy.version_name();
    let (root, interval) = (config.options.cgroup_root.display(), config.options.sample_interval.0);
    tracing::info!(cgroup_version = version, cgroup_root = %root, ?interval, "sampling");
    if config.pods.source == pod_sources::PodSource::None {
        tracing::info!(
            "no pod source: series carry the pod UID and the container ID from the cgroup path"
        );
    }
}
