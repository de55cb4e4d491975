//! Answers about processes with a timeout. The container's owner controls the file systems of its
//! files, which may be on an unreachable server or in FUSE: opening one may then block forever.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

/// Maximum number of threads blocked on unresponsive files; at this number no process is examined
/// until one returns.
pub(crate) const MAX_HELD: usize = 8;

/// Creates what examines the processes on a new thread.
type Examine<Q, A> = Box<dyn Fn() -> Box<dyn FnMut(u32, Q) -> A + Send> + Send>;

/// Threads that examine processes: usually one, and one for each process whose files have not
/// responded yet.
pub(crate) struct Answers<Q, A> {
    new: Examine<Q, A>,
    pub(crate) timeout: Duration,
    pub(crate) worker: Option<Worker<Q, A>>,
    held: Vec<(u32, Worker<Q, A>)>,
}

/// A thread that examines one process at a time. On drop it ends after the current answer.
#[derive(Debug)]
pub(crate) struct Worker<Q, A> {
    questions: Sender<(u32, Q)>,
    answers: Receiver<A>,
}

impl<Q: Send + 'static, A: Send + 'static> Answers<Q, A> {
    pub(crate) fn new(
        timeout: Duration,
        new: impl Fn() -> Box<dyn FnMut(u32, Q) -> A + Send> + Send + 'static,
    ) -> Self {
        Self { new: Box::new(new), timeout, worker: None, held: Vec::new() }
    }

    /// Examines a process; `None` if its files do not respond in time, or no thread is free.
    pub(crate) fn ask(&mut self, pid: u32, question: Q) -> Option<A> {
        let is_blocked =
            |worker: &Worker<Q, A>| matches!(worker.answers.try_recv(), Err(TryRecvError::Empty));
        self.held.retain(|(_, worker)| is_blocked(worker));
        if self.held.len() >= MAX_HELD || self.held.iter().any(|(held, _)| *held == pid) {
            return None;
        }
        let worker = self.worker.take().or_else(|| Worker::start((self.new)()))?;
        worker.questions.send((pid, question)).ok()?;
        match worker.answers.recv_timeout(self.timeout) {
            Ok(answer) => {
                self.worker = Some(worker);
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.held.push((pid, worker));
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl<Q, A> std::fmt::Debug for Answers<Q, A> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Answers").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// Starts a thread; `None` if the system has no thread left.
    pub(crate) fn start(mut examine: impl FnMut(u32, Q) -> A + Send + 'static) -> Option<Self> {
        let (questions, asked) = channel::<(u32, Q)>();
        let (answer, answers) = channel();
        let run = move || {
            while let Ok((pid, question)) = asked.recv() {
                if answer.send(examine(pid, question)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("runtimes".to_owned()).spawn(run).ok()?;
        Some(Self { questions, answers })
    }
}
