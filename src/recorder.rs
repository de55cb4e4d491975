//! `--record`: keeps the seconds of the history on disk.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use metrics::AgentMetrics;
use timeline::recording::{Error, Recorder, RingConfig};
use watchdog::Worker;

use crate::config::Config;
use crate::ui::{self, History};

/// Starts the thread, if `--record` is set. A directory that cannot be used is reported, and tried
/// again later: the agent itself does not depend on it.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start(
    config: &Config,
    history: Option<&History>,
    metrics: &Arc<AgentMetrics>,
) -> io::Result<Option<Worker>> {
    let (Some((dir, size)), Some(history)) = (config.record.clone(), history) else {
        return Ok(None);
    };
    // The directory is mostly an emptyDir, which is gone with the pod: the kernel may write it late.
    let ring = RingConfig::new(dir, size.0).thinned().without_sync();
    let recorder = Recorder::new(ring, ui::origin(config));
    let (timeline, metrics) = (history.timeline(), Arc::clone(metrics));
    let record = move |stopped: &Receiver<()>| {
        let mut known = None;
        let Ok(()) = recorder.run(&timeline, stopped, |outcome| {
            metrics.set_recording(outcome.is_ok());
            log_change(&mut known, outcome);
            Ok::<(), Infallible>(())
        });
    };
    Worker::spawn("record", record).map(Some)
}

/// Logs an outcome that differs from the last one.
fn log_change(known: &mut Option<Result<(), String>>, outcome: Result<(), Error>) {
    let outcome = outcome.map_err(|error| error.to_string());
    if known.as_ref() == Some(&outcome) {
        return;
    }
    match &outcome {
        Ok(()) => tracing::info!("--record: recording"),
        Err(reason) => {
            tracing::warn!("--record: recording has stopped: {reason}; retrying every minute");
        }
    }
    *known = Some(outcome);
}
