//! `--record`: keeps the seconds of the history on disk.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
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
    let recorder = Recorder::new(ring(dir, size.0), ui::origin(config));
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

/// The recording of an agent. Its directory is mostly an emptyDir, which is gone with the pod: the
/// kernel may write it late.
fn ring(dir: PathBuf, size: u64) -> RingConfig {
    RingConfig::new(dir, size).thinned().without_sync()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A sync each ten seconds would make the pods of a node wait for its disk.
    #[test]
    fn an_agent_does_not_sync_its_recording() {
        assert!(!ring("/nosuch".into(), 1 << 20).is_synced());
    }
}
