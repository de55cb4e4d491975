//! `--record`: keeps the seconds of the history on disk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use metrics::AgentMetrics;
use recording::{Error, Origin, Ring};
use timeline::{Frame, Timeline};
use tokio::runtime::Handle;
use watchdog::Worker;

use crate::config::Config;
use crate::ui::{self, History};

/// Maximum time between two looks whether to stop.
const LOOK: Duration = Duration::from_millis(500);
/// Time until recording is tried again after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Starts the thread, if `--record` is set. Must be called inside a tokio runtime. A directory that
/// cannot be used is reported, and tried again later: the agent itself does not depend on it.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start(
    config: &Config,
    history: Option<&History>,
    metrics: &Arc<AgentMetrics>,
) -> io::Result<Option<Worker>> {
    let (Some(dir), Some(history)) = (config.options.record.clone(), history) else {
        return Ok(None);
    };
    let mut keeper = Keeper {
        dir,
        limit: config.options.record_size.0,
        origin: ui::origin(config),
        metrics: Arc::clone(metrics),
        state: State::Closed,
    };
    let (timeline, runtime) = (history.timeline(), Handle::current());
    let record = move |stopped: &Receiver<()>| record(&runtime, &timeline, stopped, &mut keeper);
    Worker::spawn("record", record).map(Some)
}

/// Writes each frame when it ends, until the worker is dropped.
fn record(runtime: &Handle, timeline: &Timeline, stopped: &Receiver<()>, keeper: &mut Keeper) {
    let mut frames = timeline.subscribe();
    let mut last = *frames.borrow_and_update();
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        // Late or not: what counts is the number of frames.
        let next = async { tokio::time::timeout(LOOK, frames.changed()).await };
        let _ = runtime.block_on(next);
        let number = *frames.borrow_and_update();
        let ended = usize::try_from(number - last).unwrap_or(usize::MAX);
        last = number;
        match ended {
            0 => {}
            1 => timeline.latest().iter().for_each(|frame| keeper.append(frame)),
            // The disk was slow: the missed frames are still in the history.
            _ => {
                let history = timeline.frames(Duration::from_secs(ended as u64));
                let first = history.len().saturating_sub(ended);
                history.iter().skip(first).for_each(|frame| keeper.append(frame));
            }
        }
    }
}

/// Writes frames to a ring, and reports whether that works.
struct Keeper {
    dir: PathBuf,
    limit: u64,
    origin: Origin,
    metrics: Arc<AgentMetrics>,
    state: State,
}

enum State {
    /// Not opened yet.
    Closed,
    Open(Box<Ring>),
    /// Tried again at this time; the reason.
    Failed(Instant, String),
}

impl Keeper {
    fn append(&mut self, frame: &Frame) {
        if let State::Failed(retry_at, _) = &self.state
            && Instant::now() < *retry_at
        {
            return;
        }
        match self.try_append(frame) {
            Ok(()) => self.metrics.set_recording(true),
            Err(error) => {
                self.metrics.set_recording(false);
                self.fail(error.to_string());
            }
        }
    }

    fn try_append(&mut self, frame: &Frame) -> Result<(), Error> {
        if let State::Open(ring) = &mut self.state {
            return ring.append(frame);
        }
        let mut ring = Ring::open(&self.dir, self.limit, self.origin.clone())?;
        ring.append(frame)?;
        tracing::info!(directory = %self.dir.display(), "recording");
        self.state = State::Open(Box::new(ring));
        Ok(())
    }

    /// Logs each reason once.
    fn fail(&mut self, reason: String) {
        let is_known = matches!(&self.state, State::Failed(_, known) if *known == reason);
        if !is_known {
            tracing::warn!(
                "--record: {reason}; recording has stopped and is tried again every minute"
            );
        }
        self.state = State::Failed(Instant::now() + RETRY_AFTER, reason);
    }
}

#[cfg(test)]
mod tests {
    use metrics::Build;

    use super::*;

    fn frame(at_ms: u64) -> Frame {
        Frame { at_ms, seconds: 1.0, ..Frame::default() }
    }

    #[test]
    fn a_failure_stops_recording_and_a_later_frame_starts_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let ring = dir.path().join("ring");
        // Not a directory.
        std::fs::write(&ring, "").unwrap();
        let metrics = Arc::new(AgentMetrics::new(Build { version: "1", revision: "2" }));
        let mut keeper = Keeper {
            dir: ring.clone(),
            limit: recording::LEAST_SIZE,
            origin: Origin::default(),
            metrics,
            state: State::Closed,
        };
        keeper.append(&frame(1000));
        let State::Failed(_, reason) = &keeper.state else { panic!("not failed") };
        assert!(reason.contains(ring.to_str().unwrap()), "{reason}");
        std::fs::remove_file(&ring).unwrap();
        keeper.append(&frame(2000));
        assert!(!ring.exists(), "tried again at once");
        let State::Failed(retry_at, _) = &mut keeper.state else { panic!("not failed") };
        *retry_at = Instant::now();
        keeper.append(&frame(3000));
        keeper.append(&frame(4000));
        let recording = recording::Recording::open(&ring).unwrap();
        assert_eq!(recording.times(), [3000, 4000]);
    }
}
