//! Threads that end with their handle.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

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

/// Handle of a thread whose end is waited for: dropping it asks the thread to stop, and returns
/// when it has ended.
pub struct JoinedThread {
    stop: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl JoinedThread {
    /// Starts a thread. `body` must return soon after a call of `stop`, on any thread.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn spawn(
        name: &str,
        stop: impl Fn() + Send + Sync + 'static,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self { stop: Box::new(stop), thread: Some(thread) })
    }
}

impl fmt::Debug for JoinedThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("JoinedThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Drop for JoinedThread {
    fn drop(&mut self) {
        (self.stop)();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is in the log.
            let _ = thread.join();
        }
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

    #[test]
    fn a_dropped_joined_thread_has_ended_also_after_a_panic() {
        let (stop, stopped) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let thread = JoinedThread::spawn(
            "test",
            move || stop.send(()).unwrap_or_default(),
            move || {
                stopped.recv().unwrap();
                ended.send(()).unwrap();
            },
        )
        .unwrap();
        drop(thread);
        assert_eq!(end.try_recv(), Ok(()));
        drop(JoinedThread::spawn("test", || {}, || panic!("on purpose")).unwrap());
    }
}
