//! A plugin that stays connected to its runtime.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::dispatch::{Dispatcher, Fault, Job};
use crate::error::Error;
use crate::events::Runtime;
use crate::handler::Handler;
use crate::session::{PluginSettings, Session};
use crate::stop::{STOP_INTERVAL, Stop};
use crate::worker::Worker;

/// Socket of a runtime with default settings.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

/// Time that a handler has, unless set otherwise. Runtimes wait 2 s by default.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Time for registration and synchronization. A runtime registers one plugin at a time and waits
/// up to 5 s for each.
const REGISTER_WITHIN: Duration = Duration::from_secs(30);

/// First and maximum interval between connections.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A connection that was synchronized for this time resets the interval.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Change of a plugin's state, for logs and metrics. `Display` is one line of text.
#[derive(Debug)]
#[non_exhaustive]
pub enum PluginReport<'a> {
    /// The plugin is registered and synchronized: it gets events from now on.
    Synchronized {
        /// The runtime.
        runtime: &'a Runtime,
    },
    /// A request got an empty answer: the container starts without an adjustment.
    AnsweredEmpty {
        /// Called method.
        method: &'static str,
        /// Cause.
        fault: &'a Fault,
    },
    /// The connection ended, or could not be made. The plugin tries again.
    Disconnected {
        /// Cause.
        error: &'a Error,
        /// Time until the next attempt.
        retry_in: Duration,
    },
}

impl fmt::Display for PluginReport<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synchronized { runtime } => {
                write!(out, "synchronized with {} {}", runtime.name, runtime.version)
            }
            Self::AnsweredEmpty { method, fault } => {
                write!(out, "empty answer to {method}: {fault}")
            }
            Self::Disconnected { error, retry_in } => write!(out, "{error}; retry in {retry_in:?}"),
        }
    }
}

/// A plugin: a name, a place among the runtime's plugins, and a handler.
#[derive(Debug)]
pub struct Plugin<H> {
    settings: PluginSettings,
    socket: PathBuf,
    handler: H,
}

impl<H: Handler> Plugin<H> {
    /// A plugin that connects to a runtime's socket, such as [`DEFAULT_SOCKET`]. Runtimes call
    /// plugins in the order of their index, 0 to 99.
    ///
    /// # Errors
    /// If the API does not allow the name or the index.
    pub fn new(name: &str, index: u8, socket: &Path, handler: H) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
        if name.is_empty() || !name.bytes().all(allowed) {
            return Err(Error::Name(name.to_owned()));
        }
        if index > 99 {
            return Err(Error::Index(index));
        }
        let settings = PluginSettings {
            name: name.to_owned(),
            index: format!("{index:02}"),
            wanted: handler.events(),
            answer_within: ANSWER_WITHIN,
            register_within: REGISTER_WITHIN,
            keep_connected: false,
            oldest_events: false,
        };
        Ok(Self { settings, socket: socket.to_owned(), handler })
    }

    /// Time that the handler has for an answer; 500 ms by default. It never has more than half of
    /// the time that the runtime waits, which is the time for a synchronization.
    #[must_use]
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.settings.answer_within = time;
        self
    }

    /// Time that the runtime has for registration and synchronization; 30 s by default.
    #[must_use]
    pub fn register_within(mut self, time: Duration) -> Self {
        self.settings.register_within = time;
        self
    }

    /// Asks the runtime to keep the plugin connected after a timeout (containerd with version
    /// 0.12.5 or later of the library; older runtimes ignore it). Off by default.
    ///
    /// A plugin that is slow once is then not synchronized again. But a process that hangs delays
    /// every request by the runtime's full timeout, 2 s by default, for as long as it hangs. A slow
    /// handler needs no such policy: see [`Plugin::answer_within`].
    #[must_use]
    pub fn keep_connected(mut self) -> Self {
        self.settings.keep_connected = true;
        self
    }

    /// Connects and answers the runtime until `stop`, on this thread and one for the handler.
    /// Connects again whenever the connection ends, after 0.1 s to 5 s.
    ///
    /// A runtime that ends the connection after its configuration may not know an event: the next
    /// subscription is then limited to the events that every runtime knows.
    ///
    /// # Errors
    /// If the handler's thread does not start.
    pub fn run(
        mut self,
        stop: &Stop,
        mut report: impl FnMut(PluginReport<'_>),
    ) -> Result<(), Error> {
        let mut worker = start(self.handler, &self.settings)?;
        let mut retry = Retry::default();
        loop {
            let end = match connect(&self.socket, stop) {
                Ok(stream) => serve(&stream, &mut worker, &self.settings, stop, &mut report),
                Err(source) => End::of(Error::Connect { socket: self.socket.clone(), source }),
            };
            if stop.is_stopped() {
                break;
            }
            self.settings.oldest_events = end.is_unsynchronized && !self.settings.oldest_events;
            let retry_in = retry.after(end.synchronized_for);
            report(PluginReport::Disconnected { error: &end.error, retry_in });
            // A handler that hangs would not answer on the next connection either.
            if !stop.sleep(retry_in) || !worker.wait_idle(stop) {
                break;
            }
        }
        worker.end();
        Ok(())
    }

    /// Answers the runtime on one connection, such as that of a plugin which the runtime started
    /// (environment variable `NRI_PLUGIN_SOCKET`). Returns the cause of its end.
    pub fn serve(
        self,
        stream: &UnixStream,
        stop: &Stop,
        mut report: impl FnMut(PluginReport<'_>),
    ) -> Error {
        let mut worker = match start(self.handler, &self.settings) {
            Ok(worker) => worker,
            Err(error) => return error,
        };
        let end = serve(stream, &mut worker, &self.settings, stop, &mut report);
        worker.end();
        end.error
    }
}

fn start<H: Handler>(handler: H, settings: &PluginSettings) -> Result<Worker, Error> {
    Worker::start(Dispatcher::new(handler, settings.wanted)).map_err(Error::Thread)
}

/// Connects, or returns after a stop: connecting has no time limit while the runtime hangs and its
/// queue of connections is full.
fn connect(socket: &Path, stop: &Stop) -> io::Result<UnixStream> {
    let ((sender, connected), socket) = (channel(), socket.to_owned());
    let connect = move || {
        // Nobody receives it after a stop.
        let _ = sender.send(UnixStream::connect(socket));
    };
    thread::Builder::new().name("nri-connect".to_owned()).spawn(connect)?;
    loop {
        match connected.recv_timeout(STOP_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !stop.is_stopped() => {}
            Err(_) => return Err(ErrorKind::TimedOut.into()),
        }
    }
}

/// End of a connection.
struct End {
    error: Error,
    /// Whether the runtime has configured the plugin, but not synchronized it.
    is_unsynchronized: bool,
    /// Time for which the plugin got events.
    synchronized_for: Option<Duration>,
}

impl End {
    fn of(error: Error) -> Self {
        Self { error, is_unsynchronized: false, synchronized_for: None }
    }
}

fn serve(
    stream: &UnixStream,
    worker: &mut Worker,
    settings: &PluginSettings,
    stop: &Stop,
    report: &mut dyn FnMut(PluginReport<'_>),
) -> End {
    if let Err(error) = stop.watch(stream) {
        return End::of(error.into());
    }
    let (error, called, synchronized_for) = {
        let mut session = Session::new(stream, worker, settings, report);
        let error = session.run();
        let synchronized_for = session.synchronized.map(|since| since.elapsed());
        (error, session.runtime.is_some(), synchronized_for)
    };
    // First of all, so that the runtime does not wait. Fails only if the runtime has closed it.
    let _ = stream.shutdown(Shutdown::Both);
    if called {
        // A handler that hangs gets it when it returns.
        let _ = worker.call(Job::Disconnected, settings.answer_within);
    }
    stop.forget();
    let error = if stop.is_stopped() { Error::Stopped } else { error };
    let is_unsynchronized = called && synchronized_for.is_none();
    End { error, is_unsynchronized, synchronized_for }
}

/// Interval until the next connection. It doubles from one failure to the next.
#[derive(Debug)]
struct Retry {
    next: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { next: RETRY_FIRST }
    }
}

impl Retry {
    /// The interval after a connection that was synchronized for this time, if it was.
    fn after(&mut self, synchronized_for: Option<Duration>) -> Duration {
        if synchronized_for.is_some_and(|time| time >= STABLE_AFTER) {
            *self = Self::default();
        }
        let now = self.next;
        self.next = (2 * now).min(RETRY_MAX);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventMask;

    struct Silent;

    impl Handler for Silent {
        fn events(&self) -> EventMask {
            EventMask::LIFECYCLE
        }
    }

    #[test]
    fn names_and_indexes_are_those_of_the_api() {
        let plugin = |name, index| {
            let plugin = Plugin::new(name, index, Path::new(DEFAULT_SOCKET), Silent);
            plugin.map(|plugin| plugin.settings.index).map_err(|error| error.to_string())
        };
        assert_eq!(plugin("cpu-agent_1.0+x", 7).unwrap(), "07");
        assert_eq!(plugin("a", 99).unwrap(), "99");
        assert_eq!(
            plugin("a b", 1).unwrap_err(),
            "plugin name \"a b\": expected one or more of a-z, A-Z, 0-9, '-', '_', '.' and '+'"
        );
        assert!(plugin("", 1).is_err());
        assert_eq!(
            plugin("a", 100).unwrap_err(),
            "plugin index 100: expected a number from 0 to 99"
        );
    }

    #[test]
    fn the_interval_doubles_until_a_connection_is_stable() {
        let mut retry = Retry::default();
        let millis: Vec<_> = (0..8).map(|_| retry.after(None).as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(retry.after(Some(Duration::from_secs(9))).as_millis(), 5000);
        assert_eq!(retry.after(Some(Duration::from_secs(10))).as_millis(), 100);
        assert_eq!(retry.after(None).as_millis(), 200);
    }
}
