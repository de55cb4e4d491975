//! The running parts of an agent.

use std::time::Duration;

use endpoint::Serving;
use tokio::task::JoinHandle;

/// Maximum time for open scrapes to end after a signal.
const DRAIN: Duration = Duration::from_millis(700);

/// Parts that run, in the order of their start. They stop in reverse order, also when dropped.
#[derive(Default)]
pub(crate) struct RunningParts(Vec<Running>);

enum Running {
    Handle(Box<dyn Send>),
    Task(JoinHandle<()>),
    Endpoint(Serving),
}

impl RunningParts {
    /// Adds a part that stops when its handle is dropped.
    pub(crate) fn add(&mut self, handle: impl Send + 'static) {
        self.0.push(Running::Handle(Box::new(handle)));
    }

    /// Adds a task that is aborted.
    pub(crate) fn add_task(&mut self, task: JoinHandle<()>) {
        self.0.push(Running::Task(task));
    }

    /// Adds the endpoint; [`stop`](Self::stop) lets open scrapes end.
    pub(crate) fn add_endpoint(&mut self, serving: Serving) {
        self.0.push(Running::Endpoint(serving));
    }

    /// Stops everything within a second.
    pub(crate) async fn stop(mut self) {
        while let Some(part) = self.0.pop() {
            match part {
                Running::Endpoint(serving) => {
                    if tokio::time::timeout(DRAIN, serving.stop()).await.is_err() {
                        tracing::warn!("closed connections with open requests");
                    }
                }
                part => part.end(),
            }
        }
    }
}

impl Drop for RunningParts {
    fn drop(&mut self) {
        while let Some(part) = self.0.pop() {
            part.end();
        }
    }
}

impl Running {
    fn end(self) {
        match self {
            Self::Handle(handle) => drop(handle),
            Self::Task(task) => task.abort(),
            Self::Endpoint(serving) => drop(serving),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Notes its number when it stops.
    struct Noting(u32, Arc<Mutex<Vec<u32>>>);

    impl Drop for Noting {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    /// Three parts, the second of them a task.
    fn three(stopped: &Arc<Mutex<Vec<u32>>>) -> RunningParts {
        let part = |number| Noting(number, Arc::clone(stopped));
        let mut parts = RunningParts::default();
        parts.add(part(1));
        let second = part(2);
        parts.add_task(tokio::spawn(async move {
            let _second = second;
            std::future::pending::<()>().await;
        }));
        parts.add(Some(part(3)));
        parts
    }

    #[tokio::test]
    async fn parts_stop_in_reverse_order() {
        let stopped = Arc::default();
        three(&stopped).stop().await;
        tokio::task::yield_now().await;
        // An aborted task ends when the runtime next gets to it.
        assert_eq!(*stopped.lock().unwrap(), [3, 1, 2]);
    }

    #[tokio::test]
    async fn parts_that_are_dropped_stop_too() {
        let stopped = Arc::default();
        drop(three(&stopped));
        tokio::task::yield_now().await;
        assert_eq!(*stopped.lock().unwrap(), [3, 1, 2]);
    }
}
