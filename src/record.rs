//! `cpuwarden record`: keeps what happens on this node, second by second, in a directory.

use std::sync::mpsc;

use anyhow::{Context as _, anyhow};
use timeline::recording::{Recorder, RingConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::agent::Agent;
use crate::cli::RecordArgs;
use crate::config::Config;
use crate::exit::Failure;
use crate::{logging, run, signals};

/// Records until SIGTERM or SIGINT.
///
/// # Errors
/// The directory cannot be used, the node cannot be sampled, or the disk is full.
pub(crate) fn record(args: RecordArgs) -> Result<(), Failure> {
    let RecordArgs { dir: record, size, run } = args;
    let size = record.size("--size", size)?;
    let dir = record.dir;
    run.0.within(|config| {
        logging::install(&config.log, config.options.log_format);
        for unknown in crate::config::unknown_variables() {
            tracing::warn!("{unknown}");
        }
        let ring = RingConfig::new(dir.clone(), size.0);
        let mut recorder = Recorder::new(ring, crate::ui::origin(config));
        recorder.open().map_err(|error| Failure::config(error.to_string()))?;
        tracing::info!(directory = %dir.display(), limit = %size, "recording");
        run::runtime()?.block_on(record_until_signal(config, recorder))
    })
}

async fn record_until_signal(config: &Config, recorder: Recorder) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    signals::ignore()?;
    let mut agent = Agent::start_reading(config).await?;
    let timeline = agent.timeline().context("the agent of this process keeps no history")?;
    let (stop, stopped) = mpsc::channel();
    // Writing may block. The first failure ends the command.
    let mut writing =
        tokio::task::spawn_blocking(move || recorder.run(&timeline, &stopped, |outcome| outcome));
    let outcome = tokio::select! {
        written = &mut writing => written
            .context("the recording has ended")
            .and_then(|written| written.map_err(Into::into)),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = agent.failed() => Err(anyhow!("the sampler's thread ended; its panic is in the log")),
    };
    drop(stop);
    agent.drain().await;
    outcome.map_err(|error| Failure::unavailable(format!("{error:#}")))
}
