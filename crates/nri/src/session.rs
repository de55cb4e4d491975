//! One connection to a runtime: registration, configuration, synchronization, calls.

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::Message as _;

use crate::api::{ConfigureRequest, ConfigureResponse, FailurePolicy, RegisterPluginRequest};
use crate::dispatch::{self, Fault, Job, Method};
use crate::error::{Error, WireError};
use crate::events::{EventMask, Runtime};
use crate::mux;
use crate::plugin::PluginReport;
use crate::trunk::{Incoming, Trunk};
use crate::ttrpc::{self, Message, Request, Response};
use crate::worker::Worker;

const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Version of the API that `proto/api.proto` describes.
const API_VERSION: &str = "v0.12.5";

/// Stream of the registration, the only request of the plugin.
const REGISTRATION: u32 = 1;

/// Bytes read at once.
const READ_LENGTH: usize = 64 << 10;

/// Time that a write may block: a runtime that does not read has removed the plugin.
const WRITE_WITHIN: Duration = Duration::from_secs(2);

/// Settings of a plugin.
#[derive(Debug, Clone)]
pub(crate) struct PluginSettings {
    pub(crate) name: String,
    /// Two digits.
    pub(crate) index: String,
    pub(crate) wanted: EventMask,
    pub(crate) answer_within: Duration,
    pub(crate) register_within: Duration,
    /// Whether the runtime is asked to keep the plugin after a timeout.
    pub(crate) keep_connected: bool,
    /// Whether to subscribe only to events that every runtime knows.
    pub(crate) oldest_events: bool,
}

impl PluginSettings {
    /// Time for the answer to a request, of which the runtime waits `timeout_nano`: at most half of
    /// that, so that the empty answer comes in time. No container waits for a synchronization, and
    /// it is much longer than any other request: it has that half in any case.
    fn deadline(&self, method: Method, timeout_nano: i64) -> Duration {
        match u64::try_from(timeout_nano).map(|nanos| Duration::from_nanos(nanos / 2)) {
            Err(_) | Ok(Duration::ZERO) => self.answer_within,
            Ok(half) if method == Method::Synchronize => half,
            Ok(half) => self.answer_within.min(half),
        }
    }
}

/// One connection.
pub(crate) struct Session<'a> {
    stream: &'a UnixStream,
    worker: &'a mut Worker,
    settings: &'a PluginSettings,
    report: &'a mut dyn FnMut(PluginReport<'_>),
    trunk: Trunk,
    /// The runtime, once it has configured the plugin.
    pub(crate) runtime: Option<Runtime>,
    /// Time of the synchronization, after which the plugin gets events.
    pub(crate) synchronized: Option<Instant>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        stream: &'a UnixStream,
        worker: &'a mut Worker,
        settings: &'a PluginSettings,
        report: &'a mut dyn FnMut(PluginReport<'_>),
    ) -> Self {
        let trunk = Trunk::default();
        Self { stream, worker, settings, report, trunk, runtime: None, synchronized: None }
    }

    /// Serves the connection until it ends. Returns the cause.
    pub(crate) fn run(&mut self) -> Error {
        let Err(error) = self.serve();
        error
    }

    fn serve(&mut self) -> Result<Infallible, Error> {
        let deadline = Instant::now() + self.settings.register_within;
        self.stream.set_write_timeout(Some(WRITE_WITHIN))?;
        self.register()?;
        let mut buffer = vec![0; READ_LENGTH];
        loop {
            let count = self.read(&mut buffer, deadline)?;
            let mut input = &buffer[..count];
            while let Some(incoming) = self.trunk.next(&mut input)? {
                self.take(incoming)?;
            }
        }
    }

    /// Reads some bytes. Has a time limit until the plugin is synchronized.
    fn read(&self, buffer: &mut [u8], deadline: Instant) -> Result<usize, Error> {
        let late = || Error::NotSynchronized(self.settings.register_within);
        loop {
            let left = match self.synchronized {
                Some(_) => None,
                None => Some(deadline.saturating_duration_since(Instant::now())),
            };
            if left.is_some_and(|left| left.is_zero()) {
                return Err(late());
            }
            self.stream.set_read_timeout(left)?;
            let mut stream = self.stream;
            match stream.read(buffer) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => return Ok(count),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(late()),
                    ErrorKind::ConnectionReset => return Err(Error::Closed),
                    _ => return Err(error.into()),
                },
            }
        }
    }

    fn register(&self) -> Result<(), Error> {
        let registration = RegisterPluginRequest {
            plugin_name: self.settings.name.clone(),
            plugin_idx: self.settings.index.clone(),
            nri_version: API_VERSION.to_owned(),
        };
        let timeout = self.settings.register_within.as_nanos();
        let request = Request {
            service: RUNTIME_SERVICE.to_owned(),
            method: "RegisterPlugin".to_owned(),
            payload: registration.encode_to_vec(),
            timeout_nano: i64::try_from(timeout).unwrap_or(i64::MAX),
        };
        // Far below the limit.
        let message = ttrpc::encode(REGISTRATION, ttrpc::REQUEST, &request).unwrap_or_default();
        self.send(mux::RUNTIME, &message)
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), Error> {
        match incoming {
            Incoming::ToPlugin(message) if message.kind == ttrpc::REQUEST => self.request(&message),
            Incoming::FromRuntime(message)
                if message.kind == ttrpc::RESPONSE && message.stream == REGISTRATION =>
            {
                registered(&message)
            }
            // Kinds of later versions, as the Go library does.
            Incoming::ToPlugin(_) | Incoming::FromRuntime(_) => Ok(()),
        }
    }

    fn request(&mut self, message: &Message) -> Result<(), Error> {
        let stream = message.stream;
        if stream.is_multiple_of(2) {
            return Err(WireError::EvenStream { stream }.into());
        }
        let request = decode::<Request>("Request", &message.payload)?;
        let own = request.service == PLUGIN_SERVICE;
        match Method::parse(&request.method).filter(|_| own) {
            None => {
                let response = Response::unimplemented(&request.service, &request.method);
                self.respond(stream, "", &response)
            }
            Some(method) => {
                let within = self.settings.deadline(method, request.timeout_nano);
                if method == Method::Configure {
                    let answer = self.configure(&request.payload, within)?;
                    return self.answer(stream, method, answer);
                }
                self.call(stream, method, request.payload, within)
            }
        }
    }

    fn configure(&mut self, payload: &[u8], within: Duration) -> Result<Vec<u8>, Error> {
        let runtime = Runtime::new(decode::<ConfigureRequest>("ConfigureRequest", payload)?);
        let events = self.settings.wanted.subscription(&runtime, self.settings.oldest_events);
        if let Err(fault) = self.worker.call(Job::Configured(runtime.clone()), within) {
            self.report_fault(Method::Configure.name(), &fault);
        }
        self.runtime = Some(runtime);
        let failure_policy = self
            .settings
            .keep_connected
            .then_some(FailurePolicy { fail_request: false, keep_connected: true });
        Ok(ConfigureResponse { events, failure_policy }.encode_to_vec())
    }

    /// Lets the handler answer, or answers empty.
    fn call(
        &mut self,
        stream: u32,
        method: Method,
        payload: Vec<u8>,
        within: Duration,
    ) -> Result<(), Error> {
        let is_synchronization = method == Method::Synchronize;
        let is_chunk = is_synchronization && dispatch::is_chunk(&payload);
        let answer = self.worker.call(Job::Request { method, payload }, within);
        let (answer, late) = match answer {
            Ok(answer) => (answer, false),
            Err(fault) => {
                self.report_fault(method.name(), &fault);
                let answer = if is_chunk { dispatch::chunk_answer() } else { Vec::new() };
                (answer, matches!(fault, Fault::Late(_)))
            }
        };
        self.answer(stream, method, answer)?;
        if is_synchronization && !is_chunk {
            self.synchronized = Some(Instant::now());
            if let Some(runtime) = &self.runtime {
                (self.report)(PluginReport::Synchronized { runtime });
            }
        }
        // Only if the handler has decided something that the runtime does not do, it must get what
        // really runs.
        if late && method.decides() {
            return Err(Error::Late { method: method.name(), within });
        }
        Ok(())
    }

    fn answer(&mut self, stream: u32, method: Method, payload: Vec<u8>) -> Result<(), Error> {
        self.respond(stream, method.name(), &Response { status: None, payload })
    }

    fn respond(
        &mut self,
        stream: u32,
        method: &'static str,
        response: &Response,
    ) -> Result<(), Error> {
        let message = match ttrpc::encode(stream, ttrpc::RESPONSE, response) {
            Ok(message) => message,
            Err(length) => {
                self.report_fault(method, &Fault::LongAnswer(length));
                let empty = Response::default();
                ttrpc::encode(stream, ttrpc::RESPONSE, &empty).unwrap_or_default()
            }
        };
        self.send(mux::PLUGIN, &message)
    }

    fn send(&self, connection: u32, message: &[u8]) -> Result<(), Error> {
        let mut frames = Vec::new();
        mux::append_frames(connection, message, &mut frames);
        let mut stream = self.stream;
        stream.write_all(&frames).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::Closed,
            _ => error.into(),
        })
    }

    fn report_fault(&mut self, method: &'static str, fault: &Fault) {
        (self.report)(PluginReport::AnsweredEmpty { method, fault });
    }
}

fn decode<M: prost::Message + Default>(what: &'static str, bytes: &[u8]) -> Result<M, WireError> {
    M::decode(bytes).map_err(|source| WireError::Message { what, source })
}

/// The result of the registration.
fn registered(message: &Message) -> Result<(), Error> {
    match decode::<Response>("Response", &message.payload)?.status {
        Some(status) if status.code != 0 => {
            Err(Error::Rejected { code: status.code, message: status.message })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Event;

    #[test]
    fn an_answer_has_at_most_half_of_the_runtimes_time() {
        let settings = PluginSettings {
            name: String::new(),
            index: String::new(),
            wanted: EventMask::LIFECYCLE,
            answer_within: Duration::from_millis(500),
            register_within: Duration::from_secs(30),
            keep_connected: false,
            oldest_events: false,
        };
        let deadline =
            |method, millis: i64| settings.deadline(method, millis * 1_000_000).as_millis();
        let create = Method::Event(Event::CreateContainer);
        for (timeout, expected) in [(2000, 500), (600, 300), (0, 500), (-5, 500)] {
            assert_eq!(deadline(create, timeout), expected);
        }
        for (timeout, expected) in [(2000, 1000), (600, 300), (0, 500), (-5, 500)] {
            assert_eq!(deadline(Method::Synchronize, timeout), expected);
        }
    }

    #[test]
    fn the_version_that_is_registered_is_that_of_the_proto_file() {
        let note = include_str!("../proto/api.proto").lines().nth(1).unwrap();
        assert!(note.contains(&format!("nri {API_VERSION},")), "{note}");
    }
}
