//! Detection with a timeout. The container's owner controls the file systems of its files, which
//! may be on an unreachable server or in FUSE: opening one may then block forever.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use api::Runtime;

use crate::look::Looker;
use crate::parallelism::Machine;

/// Timeout for one process; its files normally take some 50 microseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of threads blocked on unresponsive files; at this number detection stops until
/// one returns.
const MAX_HELD: usize = 8;

/// Detects runtimes of processes.
#[derive(Debug)]
pub struct Detector {
    proc_root: PathBuf,
    timeout: Duration,
    worker: Option<Worker>,
    /// Processes whose files have not responded yet.
    held: Vec<(u32, Worker)>,
}

/// A thread that examines one process at a time. On drop it ends after the current answer.
#[derive(Debug)]
struct Worker {
    questions: Sender<(u32, Machine)>,
    answers: Receiver<Option<Runtime>>,
}

impl Detector {
    /// Creates a detector for the processes of this `/proc`.
    #[must_use]
    pub fn new(proc_root: PathBuf) -> Self {
        Self { proc_root, timeout: ANSWER_TIMEOUT, worker: None, held: Vec::new() }
    }

    /// The same with another timeout for one process, in place of half a second.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Detects the runtime of a container's first process on this machine, or of a descendant if
    /// the process itself has none, such as an init or a shell. Returns `None` if the process is
    /// gone, its executable may not be read, or its files do not respond in time.
    pub fn detect(&mut self, pid: u32, machine: Machine) -> Option<Runtime> {
        self.held.retain(|(_, worker)| worker.answers.try_recv() == Err(TryRecvError::Empty));
        if self.held.len() >= MAX_HELD || self.held.iter().any(|(held, _)| *held == pid) {
            return None;
        }
        let worker = self.worker.take().or_else(|| {
            let mut looker = Looker::new(self.proc_root.clone());
            Worker::start(move |pid, machine| looker.look(pid, machine))
        })?;
        worker.questions.send((pid, machine)).ok()?;
        match worker.answers.recv_timeout(self.timeout) {
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
    /// Starts a thread; `None` if the system has no thread left.
    fn start(
        mut look: impl FnMut(u32, Machine) -> Option<Runtime> + Send + 'static,
    ) -> Option<Self> {
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

    /// A worker blocked on files of an unreachable server, until the guard is dropped.
    fn held(gate: &Arc<Mutex<()>>) -> Worker {
        let gate = Arc::clone(gate);
        Worker::start(move |_, _| gate.lock().map(|_| Runtime::default()).ok()).expect("a thread")
    }

    #[test]
    fn hanging_files_do_not_block_other_detections() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("nobody has panicked");
        let mut detector = Detector::new("/proc".into());
        let (this, machine) = (std::process::id(), Machine::default());
        let mut detect = |blocked: Option<Worker>, pid| {
            let is_blocked = blocked.is_some();
            detector.worker = blocked.or(detector.worker.take());
            detector.timeout = if is_blocked { Duration::ZERO } else { Duration::MAX };
            detector.detect(pid, machine)
        };
        assert_eq!(detect(Some(held(&gate)), 1), None);
        // The process is not examined again while its worker is blocked, but others are.
        for _ in 0..20 {
            assert_eq!(detect(None, 1), None);
            assert!(detect(None, this).is_some());
        }
        for pid in 2..=MAX_HELD as u32 {
            assert_eq!(detect(Some(held(&gate)), pid), None);
        }
        assert_eq!(detect(None, this), None, "as many threads as may hang do");
        drop(closed);
        let mut answers = || {
            std::thread::sleep(Duration::from_millis(20));
            detect(None, this).is_some()
        };
        assert!((0..200).any(|_| answers()), "the threads have returned");
    }
}
