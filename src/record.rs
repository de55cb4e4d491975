//! `cpuwarden record`: keeps what happens on this node, second by second, in a directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use recording::{LEAST_SIZE, Ring};
use snapshot::{NodeSnapshot, Published};
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::agent::Agent;
use crate::cli::RecordArgs;
use crate::config::{ByteSize, Config, PinningMode};
use crate::exit::Failure;
use crate::{logging, run};

/// Time between two looks for a new snapshot.
const LOOK: Duration = Duration::from_millis(100);

/// Records until SIGTERM or SIGINT.
///
/// # Errors
/// The directory cannot be used, the node cannot be sampled, or the disk is full.
pub(crate) fn record(args: RecordArgs) -> Result<(), Failure> {
    let RecordArgs { dir, size, run } = args;
    if size.0 < LEAST_SIZE {
        let least = ByteSize(LEAST_SIZE);
        return Err(Failure::config(format!("--size: {size} is too small; use at least {least}")));
    }
    run.within(|config| {
        let config = own_config(config);
        logging::install(&config.log, config.options.log_format);
        let ring = Ring::open(&dir, size.0, crate::ui::origin(&config));
        let ring = ring.map_err(|error| Failure::config(error.to_string()))?;
        tracing::info!(directory = %dir.display(), limit = %size, "recording");
        run::runtime()?.block_on(record_until_signal(&config, ring))
    })
}

/// The configuration of a process beside a running agent: its port is not used, and it writes no
/// cpusets.
fn own_config(config: &Config) -> Config {
    let mut config = config.clone();
    config.options.listen = ([127, 0, 0, 1], 0).into();
    config.options.pinning = PinningMode::Off;
    config
}

async fn record_until_signal(config: &Config, ring: Ring) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut agent = Agent::start(config).await?;
    let timeline = Timeline::new(TimelineConfig {
        node: config.pods.node_name.clone().unwrap_or_default(),
        proc_root: config.options.proc_root.clone(),
        containers: MAX_CONTAINERS,
        pairs: MAX_PAIRS,
    });
    let is_stopped = Arc::new(AtomicBool::new(false));
    let (published, stopped) = (agent.published(), Arc::clone(&is_stopped));
    // Writing may block.
    let mut writing =
        tokio::task::spawn_blocking(move || write_frames(&timeline, &published, ring, &stopped));
    let outcome = tokio::select! {
        written = &mut writing => written.context("the recording has ended").and_then(|written| written),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = agent.failed() => Err(anyhow!("the sampler's thread ended; its panic is in the log")),
    };
    is_stopped.store(true, Ordering::Relaxed);
    agent.drain().await;
    outcome.map_err(|error| Failure::unavailable(format!("{error:#}")))
}

/// Appends each frame when it ends.
fn write_frames(
    timeline: &Timeline,
    published: &Published<NodeSnapshot>,
    mut ring: Ring,
    is_stopped: &AtomicBool,
) -> anyhow::Result<()> {
    let mut seen = 0;
    while !is_stopped.load(Ordering::Relaxed) {
        let snapshot = published.latest();
        if snapshot.sequence != seen {
            seen = snapshot.sequence;
            if timeline.observe(&snapshot).is_some()
                && let Some(frame) = timeline.latest()
            {
                ring.append(&frame)?;
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
