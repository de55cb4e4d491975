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
        let worker = self.worker.take().or_else(|| {
            let mut looker = Looker::new(self.proc_root.clone());
            Worker::start(move |pid, machine| looker.look(pid, machine))
        })?;
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
    fn start(mut look: impl FnMut(u32, Machine) -> Option<Runtime> + Send + 'static) -> Option<Self> {
        let (questions, asked) = channel::<(u32, Machine)>();
        let (answer, answers) = channel();
        let run = move || {
            while let Ok((pid, machine)) = asked.recv() {
                if answer.send(look(pid, machine)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("runtimes".to_owned()).spawn(run).ok()?;
        Some(Self { questions, answers })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A worker that looks into files on a server that is gone, until the guard goes.
    fn held(gate: &Arc<Mutex<()>>) -> Worker {
        let gate = Arc::clone(gate);
        Worker::start(move |_, _| gate.lock().map(|_| Runtime::default()).ok()).expect("a thread")
    }

    #[test]
    fn files_that_do_not_answer_hold_up_nobody_else() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("nobody has panicked");
        let mut detector = Detector::new("/proc".into());
        let (this, machine) = (std::process::id(), Machine::default());
        detector.worker = Some(held(&gate));
        assert_eq!(detector.detect(1, machine), None);
        // It is not asked again while it is held, and others are.
        for _ in 0..20 {
            assert_eq!(detector.detect(1, machine), None);
            assert!(detector.detect(this, machine).is_some());
        }
        for pid in 2..=MOST_HELD as u32 {
            detector.worker = Some(held(&gate));
            assert_eq!(detector.detect(pid, machine), None);
        }
        assert_eq!(detector.detect(this, machine), None, "as many threads as may hang do");
        drop(closed);
        let answers = |detector: &mut Detector| {
            std::thread::sleep(Duration::from_millis(20));
            detector.detect(this, machine).is_some()
        };
        assert!((0..200).any(|_| answers(&mut detector)), "the threads have returned");
    }
}
