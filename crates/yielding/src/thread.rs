//! The actor's thread. It runs a pass per interval and restores everything when it stops. After a
//! panic it continues with a new actor, as after a crash of the process.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use watchdog::JoinedThread;
use watchdog::errors::chain;

use crate::actor::{Actor, ActorConfig, Report, all_cpus};
use crate::checkpoint::{Checkpoint, take_lock};
use crate::inputs::Inputs;
use crate::{Error, Result};

/// Pause before the next pass after a panic.
const PAUSE: Duration = Duration::from_secs(10);

/// Result of one round of the thread.
#[derive(Debug)]
pub enum Round {
    /// No pass: the pods are not known yet.
    Waited,
    /// One pass, with its report.
    Passed(Box<Report>),
    /// The actor panicked; a later round uses a new one.
    Panicked,
}

/// Starts the actor on its own thread, `yielding`. It calls `inputs` before each pass, and `report`
/// after every round. Dropping the handle restores everything and ends the thread.
///
/// # Errors
/// A thread that cannot be created.
pub fn spawn(
    config: ActorConfig,
    mut inputs: impl FnMut() -> Option<Inputs> + Send + 'static,
    interval: Duration,
    mut report: impl FnMut(Round) + Send + 'static,
) -> io::Result<JoinedThread> {
    let (stop, stopped) = mpsc::channel::<()>();
    let stop = move || {
        // Fails if the thread has ended.
        let _ = stop.send(());
    };
    JoinedThread::spawn("yielding", stop, move || {
        let mut actor = Actor::new(config.clone(), Instant::now());
        loop {
            let began = Instant::now();
            let mut round = || match inputs() {
                Some(inputs) => Round::Passed(Box::new(actor.pass(began, &inputs))),
                None => Round::Waited,
            };
            let passed = catch_unwind(AssertUnwindSafe(&mut round));
            let pause = if passed.is_ok() { interval } else { PAUSE };
            report(passed.unwrap_or_else(|_| {
                // The new actor reads the checkpoint, as after a crash.
                actor = Actor::new(config.clone(), Instant::now());
                Round::Panicked
            }));
            let left = pause.saturating_sub(began.elapsed());
            if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        let (restored, errors) = actor.give_back();
        for error in &errors {
            tracing::error!(error = chain(error), "failed to restore a setting of a pod");
        }
        if restored > 0 {
            tracing::info!(restored, "restored the settings of pods");
        }
    })
}

/// Restores what an earlier process left on a thread of its own, `restoring`: every `every` until
/// it has succeeded or the handle is dropped. It calls `report` after each attempt, with the number
/// of restored settings. Not for an actor that writes: it restores what is left itself.
///
/// # Errors
/// A thread that cannot be created.
pub fn keep_restoring(
    config: ActorConfig,
    every: Duration,
    mut report: impl FnMut(Result<usize>) + Send + 'static,
) -> io::Result<JoinedThread> {
    let (stop, stopped) = mpsc::channel::<()>();
    let stop = move || {
        // Fails if the thread has ended.
        let _ = stop.send(());
    };
    JoinedThread::spawn("restoring", stop, move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let restored = restore(&config, Duration::ZERO);
            let is_done = restored.is_ok();
            report(restored);
            if is_done {
                break;
            }
        }
    })
}

/// Restores what an earlier process left; waits up to `timeout` for a running agent to end or to
/// drain. Returns the number of restored settings.
///
/// # Errors
/// A lock or checkpoint that cannot be used, or the first setting that could not be restored.
pub fn restore(config: &ActorConfig, timeout: Duration) -> Result<usize> {
    let deadline = Instant::now() + timeout;
    let _lock = loop {
        match take_lock(&config.state_dir) {
            Err(Error::Locked(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            taken => break taken?,
        }
    };
    let mut checkpoint = Checkpoint::read(&config.state_dir, &config.proc_root)?;
    let restored =
        checkpoint.restore(&config.hierarchy, &all_cpus(config), &config.resizes, |_| true);
    checkpoint.write(&config.state_dir, &config.proc_root)?;
    let first = restored.failed.into_iter().next();
    first.map_or(Ok(restored.done.len()), |(_, error)| Err(error))
}
