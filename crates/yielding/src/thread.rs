//! The actor's thread. It runs a pass per interval and restores everything when it stops. After a
//! panic it continues with a new actor, as after a crash of the process.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use watchdog::errors::chain;
use watchdog::{JoinedThread, RunEnd, restart_until_stopped};

use crate::Result;
use crate::actor::{Actor, Report};
use crate::config::ActorConfig;
use crate::inputs::Inputs;
use crate::restore::restore;

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
    spawn_stoppable("yielding", move |stopped| {
        let is_stopped_within =
            |pause| stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
        // After a panic, the new actor reads the checkpoint, as after a crash.
        let run = |report: &mut _| {
            let actor = Actor::new(config.clone(), Instant::now());
            pass_until_stopped(actor, &mut inputs, report, interval, is_stopped_within);
            RunEnd::Stopped
        };
        restart_until_stopped(&mut report, run, |report, _, pause| {
            report(Round::Panicked);
            is_stopped_within(pause)
        });
    })
}

fn pass_until_stopped(
    mut actor: Actor,
    inputs: &mut impl FnMut() -> Option<Inputs>,
    report: &mut impl FnMut(Round),
    interval: Duration,
    is_stopped_within: impl Fn(Duration) -> bool,
) {
    loop {
        let began = Instant::now();
        report(match inputs() {
            Some(inputs) => Round::Passed(Box::new(actor.pass(began, &inputs))),
            None => Round::Waited,
        });
        if is_stopped_within(interval.saturating_sub(began.elapsed())) {
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
    spawn_stoppable("restoring", move |stopped| {
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

/// Starts a thread that is stopped by a message.
fn spawn_stoppable(
    name: &str,
    body: impl FnOnce(Receiver<()>) + Send + 'static,
) -> io::Result<JoinedThread> {
    let (stop, stopped) = mpsc::channel::<()>();
    let stop = move || {
        // Fails if the thread has ended.
        let _ = stop.send(());
    };
    JoinedThread::spawn(name, stop, move || body(stopped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn a_panic_is_reported_and_rounds_follow_it() {
        let (dir, mut rounds) = (tempfile::tempdir().unwrap(), 0);
        let inputs = move || {
            rounds += 1;
            assert!(rounds > 1, "on purpose");
            None
        };
        let (report, reported) = mpsc::channel();
        let report = move |round| drop(report.send(round));
        let thread = spawn(config(dir.path()), inputs, Duration::from_secs(60), report).unwrap();
        let next = || reported.recv_timeout(Duration::from_secs(60));
        assert!(matches!(next(), Ok(Round::Panicked)));
        assert!(matches!(next(), Ok(Round::Waited)));
        drop(thread);
        assert!(next().is_err(), "the thread has ended");
    }
}
