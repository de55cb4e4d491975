//! The whole agent: pods, sampler, endpoint. Both `run` and `demo` start it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use advisor::Advisor;
use anyhow::Context;
use cgroupfs::{Hierarchy, raise_descriptor_limit};
use endpoint::{Auth, Identity, Parts, Serving, Sources};
use kernel_text::WeightRule;
use kubelet::{PodService, Pods, chain};
use metrics::{AgentMetrics, Build, Exposition};
use sampler::{DescriptorBudget, Running, Sampler, SamplerConfig};
use snapshot::{NodeSnapshot, Published};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use watchdog::{Checking, Part, Watchdog};

use crate::advise::ArrivalSampler;
use crate::check::{Checked, check};
use crate::claims::Claims;
use crate::config::{Config, WeightRuleName};
use crate::exit::Failure;
use crate::trace;

/// Maximum time for open scrapes to end after a signal.
const DRAIN: Duration = Duration::from_millis(700);

/// The running agent.
pub(crate) struct Agent {
    sampling: Running,
    tracing: Option<sched_trace::Running>,
    /// Stops when the agent is dropped; pinned pods stay as they are.
    pinning: Option<pinning::Running>,
    sampler_ended: oneshot::Receiver<()>,
    #[cfg_attr(not(feature = "demo"), expect(dead_code, reason = "for the demo"))]
    published: Published<NodeSnapshot>,
    #[cfg_attr(not(feature = "demo"), expect(dead_code, reason = "for the demo"))]
    pods: Pods,
    address: SocketAddr,
    serving: Serving,
    identity: Option<Arc<Identity>>,
    advising: JoinHandle<()>,
    /// Stops when the agent is dropped.
    _arrivals: ArrivalSampler,
    checking: Checking,
}

impl Agent {
    /// Starts everything. Opens the port first, so that an error there is reported before anything
    /// runs.
    ///
    /// # Errors
    /// The port is in use, there is no cgroup hierarchy, or the configuration of the pod sources is
    /// invalid.
    pub(crate) async fn start(config: &Config) -> Result<Self, Failure> {
        let Checked { hierarchy, identity } = check(config)?;
        let identity = identity.map(Arc::new);
        let listener = bind(config.options.listen)?;
        let address =
            listener.local_addr().context("cannot read the port of the listening socket")?;
        let watchdog = Watchdog::new();
        let pods = start_pods(config, &watchdog)?;
        let auth = config.options.metrics_auth.then(|| auth(config, &pods)).transpose()?;
        let build = Build {
            version: env!("CARGO_PKG_VERSION"),
            revision: option_env!("CPUWARDEN_REVISION").unwrap_or("unknown"),
        };
        let metrics = Arc::new(AgentMetrics::new(build));
        say_what_was_found(config, &hierarchy);
        let pinning = crate::pinning::start(config, &hierarchy, &pods, &metrics, &watchdog)?;
        let sampler =
            Sampler::new(sampler_config(config, hierarchy.clone()), Box::new(pods.clone()))
                .context("cannot set up the sampler")?;
        let published = sampler.published();
        let wiring = sched_trace::Wiring {
            hierarchy: hierarchy.clone(),
            published: published.clone(),
            slot: sampler.waits(),
            watchdog: watchdog.clone(),
        };
        let mut claims = Claims::new(Arc::clone(&metrics), sampler.waits());
        let tracing = trace::start(config, wiring, Arc::clone(&metrics)).await?;
        let (alive, sampler_ended) = oneshot::channel::<()>();
        let is_published = Arc::new(Notify::new());
        let sampling = {
            let (metrics, is_published) = (Arc::clone(&metrics), Arc::clone(&is_published));
            let beat = watchdog.watch(Part::Sampler, config.options.sample_interval.0);
            sampler::spawn(sampler, move |report| {
                // Dropped with this closure when the thread ends, for any reason.
                let _ = &alive;
                metrics.observe_tick(report.lateness, report.duration);
                is_published.notify_one();
                beat.beat(report.interval);
            })
            .context("cannot start the sampler's thread")?
        };
        let advisor = Advisor::new(
            config.options.proc_root.clone(),
            Arc::clone(&metrics),
            config.options.advice_after.0,
        );
        let arrivals = {
            let metrics = Arc::clone(&metrics);
            let panicked = move || metrics.subsystem_restarted(Part::ArrivalSampler.as_str());
            let beat = watchdog.watch(Part::ArrivalSampler, advisor::ROUND);
            ArrivalSampler::start(advisor.clone(), hierarchy, beat, panicked)
        };
        let arrivals = arrivals.context("cannot start the thread that samples arrivals")?;
        let beat = watchdog.watch(Part::Advice, advisor::ROUND);
        let advising = tokio::spawn(advisor.clone().follow(
            published.clone(),
            is_published,
            move |every| beat.beat(every),
        ));
        let checking = Checking::start(watchdog.clone(), move |watched, silent| {
            claims.update(watched, silent);
        });
        let checking = checking.context("cannot start the watchdog's thread")?;
        let sources = Sources {
            published: published.clone(),
            pods: pods.clone(),
            metrics: Arc::clone(&metrics),
            advisor,
            watchdog,
        };
        let (max_series, families) = (config.options.max_series, config.selection.clone());
        let serving = Serving::start(Parts {
            listener,
            identity: identity.clone(),
            auth,
            cadvisor: config.options.cadvisor_metrics,
            sources,
            new_exposition: Box::new(move || {
                Exposition::with_selection(max_series, families.clone())
            }),
            interval: config.options.sample_interval.0,
        });
        let serving = serving.context("cannot start the endpoint's thread")?;
        Ok(Self {
            sampling,
            tracing,
            pinning,
            advising,
            _arrivals: arrivals,
            checking,
            sampler_ended,
            published,
            pods,
            address,
            serving,
            identity,
        })
    }

    /// Address of the endpoint.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
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
        if let Some(identity) = &self.identity {
            identity.reload();
        }
        if let Some(pinning) = &self.pinning {
            pinning.set_profiles(config.pinning.profiles.clone());
        }
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
        // Stop the watchdog first: the parts that end from here on are meant to.
        drop(self.checking);
        self.advising.abort();
        if tokio::time::timeout(DRAIN, self.serving.stop()).await.is_err() {
            tracing::warn!("closed connections with open requests");
        }
        drop(self.tracing);
        // The thread ends after the current tick.
        self.sampling.stop();
    }
}

fn start_pods(config: &Config, watchdog: &Watchdog) -> Result<Pods, Failure> {
    let watch = |task| -> kubelet::Beat {
        let (part, every) = match task {
            kubelet::Task::Pods => (Part::Pods, config.pods.request_timeout),
            kubelet::Task::PodResources => (Part::PodResources, config.pods.poll_interval),
        };
        let beat = watchdog.watch(part, every);
        Box::new(move |every| beat.beat(every))
    };
    PodService::start_watched(&config.pods, &tokio::runtime::Handle::current(), watch)
        .map_err(|error| Failure::config(chain(&error)))
}

/// The reviewer of readers of the metrics.
fn auth(config: &Config, pods: &Pods) -> Result<Auth, Failure> {
    let failed = |error: &dyn std::error::Error| {
        Failure::config(format!("--metrics-auth: {}", chain(error)))
    };
    let connection = pods.apiserver(&config.pods).map_err(|error| failed(&error))?;
    Auth::new(&connection).map_err(|error| failed(&error))
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    endpoint::listen(address).map_err(|error| {
        Failure::unavailable(format!(
            "--listen: cannot listen on {address}: {error}; free the port or choose another"
        ))
    })
}

/// Number of descriptors for 250 pods with two containers: up to 14 files per container, three per
/// pod, and some spare.
const DESCRIPTORS_OF_A_FULL_NODE: u64 = 8192;

/// Configuration of the sampler.
pub(crate) fn sampler_config(config: &Config, hierarchy: Hierarchy) -> SamplerConfig {
    let limit = raise_descriptor_limit();
    if limit.soft < DESCRIPTORS_OF_A_FULL_NODE {
        tracing::warn!(
            limit = limit.soft,
            "low limit of open files: on a full node the agent must open files for each read, which costs twenty times \
             as much; raise the limit to {DESCRIPTORS_OF_A_FULL_NODE} (LimitNOFILE)"
        );
    }
    let pinning = crate::pinning::descriptors(config, limit.soft);
    SamplerConfig {
        hierarchy,
        kubepods: config.options.kubepods.iter().cloned().collect(),
        proc_root: config.options.proc_root.clone(),
        sys_root: config.options.sys_root.clone(),
        interval: config.options.sample_interval.0,
        cpu_budget_cores: config.options.cpu_budget,
        reconcile_interval: config.reconcile_interval,
        descriptors: DescriptorBudget::from_limit(limit.soft.saturating_sub(pinning))
            .at_most(config.options.max_open_files - pinning),
        weight_rule: match config.options.weight_rule {
            WeightRuleName::Linear => WeightRule::Linear,
            WeightRuleName::Quadratic => WeightRule::Quadratic,
        },
    }
}

fn say_what_was_found(config: &Config, hierarchy: &Hierarchy) {
    let version = hierarchy.version_name();
    let (root, interval) = (config.options.cgroup_root.display(), config.options.sample_interval.0);
    tracing::info!(cgroup_version = version, cgroup_root = %root, ?interval, "sampling");
    if config.pods.source == kubelet::PodSource::None {
        tracing::info!(
            "no pod source: series carry the pod UID and the container ID from the cgroup path"
        );
    }
}
