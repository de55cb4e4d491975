//! Stop of a running plugin from another thread.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a wait for something that hangs checks for a stop.
pub(crate) const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Handle that ends [`Plugin::run`](crate::Plugin::run). Clones stop the same plugin.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<SharedStop>,
}

#[derive(Debug, Default)]
struct SharedStop {
    state: Mutex<StopState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StopState {
    stopped: bool,
    /// The connection, which a stop shuts down.
    stream: Option<UnixStream>,
}

impl Stop {
    /// A handle of a plugin that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Closes the connection and ends the plugin permanently.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        if let Some(stream) = &state.stream {
            // Fails only when the runtime has already closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }

    /// Whether [`Stop::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Lets a stop shut down this connection.
    pub(crate) fn watch(&self, stream: &UnixStream) -> io::Result<()> {
        let stream = stream.try_clone()?;
        let mut state = self.state();
        if state.stopped {
            stream.shutdown(Shutdown::Both)?;
        }
        state.stream = Some(stream);
        Ok(())
    }

    /// Closes the handle's copy of the connection.
    pub(crate) fn forget(&self) {
        self.state().stream = None;
    }

    /// Sleeps, or returns early after a stop. Returns whether the plugin continues.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.stopped || left.is_zero() {
                return !state.stopped;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, StopState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
