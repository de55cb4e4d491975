//! The history behind the page and the JSON API, and the views that read the node.

use std::sync::Arc;

use anyhow::anyhow;
use endpoint::Ui;
use metrics::Build;
use snapshot::{NodeSnapshot, Published};
use timeline::recording::Origin;
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use watchdog::{Part, Watchdog};

use crate::config::{Config, UiMode};
use crate::exit::Failure;

/// The history, and the task that feeds it.
pub(crate) struct History {
    timeline: Timeline,
    is_published: Arc<Notify>,
    following: JoinHandle<()>,
}

impl History {
    /// Reserves the memory and starts the task, unless nothing needs a history.
    pub(crate) fn start(
        config: &Config,
        published: &Published<NodeSnapshot>,
        watchdog: &Watchdog,
    ) -> Option<Self> {
        if config.options.ui == UiMode::Off && config.record.is_none() {
            return None;
        }
        let timeline = Timeline::new(TimelineConfig {
            node: config.pods.node_name.clone().unwrap_or_default(),
            containers: MAX_CONTAINERS,
            pairs: MAX_PAIRS,
        });
        let is_published = Arc::new(Notify::new());
        let beat = watchdog.watch(Part::Timeline, timeline::ROUND);
        let proc_root = config.options.proc_root.clone();
        let following = tokio::spawn(timeline.clone().follow(
            published.clone(),
            Arc::clone(&is_published),
            move || cgroupfs::cpu_times(&proc_root),
            move |every| beat.beat(every),
        ));
        Some(Self { timeline, is_published, following })
    }

    /// The frames of the last ten minutes.
    pub(crate) fn timeline(&self) -> Timeline {
        self.timeline.clone()
    }

    /// Notified when a snapshot is published.
    pub(crate) fn is_published(&self) -> Arc<Notify> {
        Arc::clone(&self.is_published)
    }

    /// Sources of the page and of the JSON API, unless they are off.
    pub(crate) fn ui(&self, config: &Config, build: Build<'static>) -> Option<Ui> {
        if config.options.ui == UiMode::Off {
            return None;
        }
        let [of_topology, of_pins, of_doctor] = [config, config, config].map(Config::clone);
        Some(Ui {
            timeline: self.timeline.clone(),
            is_replay: false,
            version: build.version,
            revision: build.revision,
            topology: Box::new(move || {
                crate::pinning::node_topology(&of_topology).map_err(|failure| error(&failure))
            }),
            pins: Box::new(move || {
                crate::pinning::pin_rows(&of_pins).map_err(|failure| error(&failure))
            }),
            doctor: Box::new(move || {
                // A runtime of its own: that of the endpoint has no thread to spare.
                let report = crate::run::runtime()
                    .and_then(|runtime| runtime.block_on(crate::doctor::examine(&of_doctor)));
                report.map_err(|failure| error(&failure))
            }),
            origin: origin(config),
            recorded: config.record.as_ref().map(|(dir, _)| dir.clone()),
        })
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// The origin of this agent's recordings.
pub(crate) fn origin(config: &Config) -> Origin {
    Origin {
        node: config.pods.node_name.clone().unwrap_or_default(),
        agent: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn error(failure: &Failure) -> anyhow::Error {
    anyhow!("{failure}")
}
