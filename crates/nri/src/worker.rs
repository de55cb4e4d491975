//! The handler's thread: a call that panics or hangs does not stop the connection.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::dispatch::{Answer, Dispatcher, Fault, Job};
use crate::handler::Handler;
use crate::stop::{STOP_INTERVAL, Stop};

/// The handler's thread. It runs jobs in their order.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<(u64, Job)>,
    answers: Receiver<(u64, Answer)>,
    /// Number of the last job sent.
    sent: u64,
    /// Number of the last job answered.
    answered: u64,
    thread: JoinHandle<()>,
}

impl Worker {
    pub(crate) fn start<H: Handler>(mut dispatcher: Dispatcher<H>) -> io::Result<Self> {
        let (jobs, received) = channel::<(u64, Job)>();
        let (answer, answers) = channel();
        let thread = thread::Builder::new().name("nri-handler".to_owned()).spawn(move || {
            for (number, job) in received {
                let run = AssertUnwindSafe(|| dispatcher.run(job));
                let result = catch_unwind(run)
                    .unwrap_or_else(|panic| Err(Fault::Panicked(message(panic.as_ref()))));
                if answer.send((number, result)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, answers, sent: 0, answered: 0, thread })
    }

    /// Runs a job and waits for its answer, also while an earlier one still runs. A late answer is
    /// dropped.
    pub(crate) fn call(&mut self, job: Job, within: Duration) -> Answer {
        let deadline = Instant::now() + within;
        self.sent += 1;
        if self.jobs.send((self.sent, job)).is_err() {
            return Err(Fault::Late(within));
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((number, answer)) = self.answers.recv_timeout(left) else {
                return Err(Fault::Late(within));
            };
            self.answered = number;
            if number == self.sent {
                return answer;
            }
        }
    }

    /// Waits until no job runs. Returns false after a stop.
    pub(crate) fn wait_idle(&mut self, stop: &Stop) -> bool {
        while self.answered < self.sent {
            match self.answers.recv_timeout(STOP_INTERVAL) {
                Ok((number, _)) => self.answered = number,
                Err(RecvTimeoutError::Timeout) => {}
                // The thread ends only with the process.
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if stop.is_stopped() {
                return false;
            }
        }
        !stop.is_stopped()
    }

    /// Ends the thread. A handler that hangs is left to itself.
    pub(crate) fn end(self) {
        let idle = self.answered == self.sent;
        drop(self.jobs);
        if idle {
            // Panics were caught: it always joins.
            let _ = self.thread.join();
        }
    }
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}
