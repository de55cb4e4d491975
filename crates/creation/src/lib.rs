//! The agent as a plugin of the container runtime, through the Node Resource Interface: it gets
//! each pod and container before the first instruction.
//!
//! One connection serves all parts: the names of new pods for the pod sources, CPUs and environment
//! variables for new containers, and resizes for their bursts. Every call is answered from memory.

mod handler;
mod log;
mod placing;
mod report;
pub mod variables;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use metrics::AgentMetrics;
use nri::{Plugin, Stop};
use pod_sources::RuntimeSource;
use watchdog::{JoinedThread, Part, Watchdog};
use yielding::Resizes;

use handler::Creations;
use log::Log;
pub use placing::Placing;
use variables::Injector;

/// Name of the plugin at the runtime.
pub const NAME: &str = "cpuwarden";
/// Place of the plugin: runtimes call plugins in ascending order. The last one sees the variables
/// and CPUs that all others have set.
const INDEX: u8 = 99;

/// Users of the runtime's events.
#[derive(Debug)]
pub struct Users {
    /// The pod sources.
    pub source: RuntimeSource,
    /// Environment variables for new containers.
    pub injector: Option<Arc<Mutex<Injector>>>,
    /// Bursts, which must be lowered before a limit is.
    pub resizes: Option<Resizes>,
    /// CPUs for new containers.
    pub placing: Option<Placing>,
}

/// Starts the plugin, whose connection ends when the handle is dropped; containers keep their
/// adjustments. The runtime's socket may appear later.
///
/// # Errors
/// The thread does not start.
pub fn start(
    users: Users,
    nri_socket: &Path,
    metrics: &Arc<AgentMetrics>,
    watchdog: &Watchdog,
) -> anyhow::Result<JoinedThread> {
    let mut log = Log::new(Arc::clone(metrics), users.source.clone());
    let plugin = Plugin::new(NAME, INDEX, nri_socket, Creations::new(users));
    let plugin = plugin.context("cannot set up the NRI plugin")?;
    let stop = Stop::new();
    let stopped = stop.clone();
    // It waits for the runtime for as long as nothing is created.
    let alive = watchdog.watch(Part::Nri, Duration::MAX);
    let body = move || {
        let _alive = alive;
        log.disconnected("not connected yet");
        if let Err(error) = plugin.run(&stopped, |report| log.take(&report)) {
            log.disconnected("the plugin ended");
            tracing::error!(%error, "the NRI plugin ended; new containers start without it");
        }
    };
    let thread = JoinedThread::spawn("nri", move || stop.stop(), body);
    thread.context("cannot start the thread of the NRI plugin")
}
