//! Detection that nobody waits for without end: whoever runs a container decides what its files are on, a server that is
//! gone or a file system of its own making, and to open one may then never return.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use analysis::Runtime;

use crate::look::Looker;
use crate::parallelism::Machine;

/// For one process, whose files take some 50 microseconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// Threads that may hang in files that do not answer: then nothing more is looked for until one returns.
const MOST_HELD: usize = 8;

/// Detects runtimes of processes.
#[derive(Debug)]
pub struct Detector {
    proc_root: PathBuf,
    worker: Option<Worker>,
    /// Processes whose files have not answered yet.
    held: Vec<(u32, Worker)>,
}

/// A thread that looks into one process at a time, and ends when this is dropped, once it has its answer.
#[derive(Debug)]
struct Worker {
    questions: Sender<(u32, Machine)>,
    answers: Receiver<Option<Runtime>>,
}

impl Detector {
    /// A detector of the processes of this `/proc`.
    #[must_use]
    pub fn new(proc_root: PathBuf) -> Self {
        Self { proc_root, worker: None, held: Vec::new() }
    }

    /// The runtime of a container's first process on this machine; of its first child where the process itself tells
    /// nothing, as an init or a shell does. `None` when it is gone or its executable may not be read, or does not answer
    /// within half a second.
    pub fn detect(&mut self, pid: u32, machine: Machine) -> Option<Runtime> {
        self.held.retain(|(_, worker)| worker.answers.try_recv() == Err(TryRecvError::Empty));
        if self.held.len() >= MOST_HELD || self.held.iter().any(|(held, _)| *held == pid) {
            return None;
        }
        let worker = self.worker.take().or_else(|| Worker::start(self.proc_root.clone()))?;
        worker.questions.send((pid, machine)).ok()?;
        match worker.answers.recv_timeout(PATIENCE) {
            Ok(found) => {
                self.worker = Some(worker);
                found
            }
            Err(RecvTimeoutError::Timeout) => {
                self.held.push((pid, worker));
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl Worker {
    /// `None` where the system has no thread left.
    fn start(proc_root: PathBuf) -> Option<Self> {
        let (questions, asked) = channel::<(u32, Machine)>();
        let (answer, answers) = channel();
        let run = move || {
            let mut looker = Looker::new(proc_root);
            while let Ok((pid, machine)) = asked.recv() {
                if answer.send(looker.look(pid, machine)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("runtimes".to_owned()).spawn(run).ok()?;
        Some(Self { questions, answers })
    }
}
