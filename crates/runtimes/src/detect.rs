//! Detection of runtimes, with a timeout for each process.

use std::path::PathBuf;
use std::time::Duration;

use api::Runtime;

use crate::answers::Answers;
use crate::look::Looker;
use crate::parallelism::Machine;

/// Timeout for one process; its files normally take some 50 microseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Detects runtimes of processes.
#[derive(Debug)]
pub struct Detector {
    answers: Answers<Machine, Option<Runtime>>,
}

impl Detector {
    /// Creates a detector for the processes of this `/proc`.
    #[must_use]
    pub fn new(proc_root: PathBuf) -> Self {
        let answers = Answers::new(ANSWER_TIMEOUT, move || {
            let mut looker = Looker::new(proc_root.clone());
            Box::new(move |pid, machine| looker.look(pid, machine))
        });
        Self { answers }
    }

    /// The same with another timeout for one process, in place of half a second.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.answers.timeout = timeout;
        self
    }

    /// Detects the runtime of a container's first process on this machine, or of a descendant if
    /// the process itself has none, such as an init or a shell. Returns `None` if the process is
    /// gone, its executable may not be read, or its files do not respond in time.
    pub fn detect(&mut self, pid: u32, machine: Machine) -> Option<Runtime> {
        self.answers.ask(pid, machine).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::answers::{MAX_HELD, Worker};

    /// A worker blocked on files of an unreachable server, until the guard is dropped.
    fn held(gate: &Arc<Mutex<()>>) -> Worker<Machine, Option<Runtime>> {
        let gate = Arc::clone(gate);
        Worker::start(move |_, _| gate.lock().map(|_| Runtime::default()).ok()).expect("a thread")
    }

    #[test]
    fn hanging_files_do_not_block_other_detections() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("nobody has panicked");
        let mut detector = Detector::new("/proc".into());
        let (this, machine) = (std::process::id(), Machine::default());
        let mut detect = |blocked: Option<Worker<Machine, Option<Runtime>>>, pid| {
            let is_blocked = blocked.is_some();
            let answers = &mut detector.answers;
            answers.worker = blocked.or(answers.worker.take());
            answers.timeout = if is_blocked { Duration::ZERO } else { Duration::MAX };
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
