//! Threads that end with their handle.

use std::io;
use std::sync::mpsc::{self, Receiver};

/// Handle of a thread. Dropping it stops the thread after its current work, without waiting for it.
#[derive(Debug)]
pub struct Worker {
    _stop: mpsc::Sender<()>,
}

impl Worker {
    /// Starts a thread. `body` must return once the other end of its channel is dropped.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn spawn(
        name: &str,
        body: impl FnOnce(&Receiver<()>) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&stopped))?;
        Ok(Self { _stop: stop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_handle_ends_the_thread() {
        let (ended, end) = mpsc::channel();
        let worker = Worker::spawn("test", move |stopped| {
            let result = stopped.recv();
            ended.send((std::thread::current().name().map(str::to_owned), result)).unwrap();
        });
        drop(worker.unwrap());
        assert_eq!(end.recv().unwrap(), (Some("test".to_owned()), Err(mpsc::RecvError)));
    }
}
