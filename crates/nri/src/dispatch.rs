//! Calls of the plugin service: decoded, passed to the handler, its answer encoded.

use std::fmt;
use std::mem;
use std::time::Duration;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

use crate::api::{
    Container, CreateContainerRequest, CreateContainerResponse, Event, PodSandbox,
    PostCreateContainerRequest, StateChangeEvent, StopContainerRequest, StopContainerResponse,
    SynchronizeRequest, SynchronizeResponse, UpdateContainerRequest, UpdateContainerResponse,
    UpdatePodSandboxRequest,
};
use crate::events::{EventMask, Runtime};
use crate::handler::Handler;
use crate::size::{self, decode};

/// Maximum length of all chunks of one synchronization, bytes.
const SYNCHRONIZE_LIMIT: usize = 32 << 20;

/// Maximum memory of the objects of one synchronization, bytes: 1,000 containers with the seccomp
/// rules of the runtime.
const SYNCHRONIZE_OBJECTS: usize = 64 << 20;

/// A method of the plugin service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Configure,
    Synchronize,
    Shutdown,
    /// Any event without an answer, from runtimes before 0.12.
    StateChange,
    /// The event's own method.
    Event(Event),
}

const METHODS: [(&str, Method); 18] = [
    ("Configure", Method::Configure),
    ("Synchronize", Method::Synchronize),
    ("Shutdown", Method::Shutdown),
    ("StateChange", Method::StateChange),
    ("RunPodSandbox", Method::Event(Event::RunPodSandbox)),
    ("UpdatePodSandbox", Method::Event(Event::UpdatePodSandbox)),
    ("PostUpdatePodSandbox", Method::Event(Event::PostUpdatePodSandbox)),
    ("StopPodSandbox", Method::Event(Event::StopPodSandbox)),
    ("RemovePodSandbox", Method::Event(Event::RemovePodSandbox)),
    ("CreateContainer", Method::Event(Event::CreateContainer)),
    ("PostCreateContainer", Method::Event(Event::PostCreateContainer)),
    ("StartContainer", Method::Event(Event::StartContainer)),
    ("PostStartContainer", Method::Event(Event::PostStartContainer)),
    ("UpdateContainer", Method::Event(Event::UpdateContainer)),
    ("PostUpdateContainer", Method::Event(Event::PostUpdateContainer)),
    ("StopContainer", Method::Event(Event::StopContainer)),
    ("RemoveContainer", Method::Event(Event::RemoveContainer)),
    ("ValidateContainerAdjustment", Method::Event(Event::ValidateContainerAdjustment)),
];

impl Method {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        METHODS.iter().find(|(other, _)| *other == name).map(|&(_, method)| method)
    }

    /// Whether the answer decides what the runtime does. An answer to any other method may be late:
    /// the handler still gets the call, in its order.
    pub(crate) fn decides(self) -> bool {
        matches!(self, Self::Event(Event::CreateContainer | Event::UpdateContainer))
    }

    pub(crate) fn name(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("", |&(name, _)| name)
    }
}

/// Cause of an empty answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The handler panicked, with this message.
    Panicked(String),
    /// The handler did not answer in this time.
    Late(Duration),
    /// The request could not be decoded.
    Undecodable(DecodeError),
    /// The answer is longer than a message can be; its length in bytes.
    LongAnswer(usize),
    /// The chunks of a synchronization are longer than is kept; their length in bytes so far.
    LongSynchronization(usize),
    /// The elements of all lists of a request would take more memory than they may; bytes, without
    /// their text.
    ManyObjects(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(out, "the handler panicked: {message}"),
            Self::Late(within) => write!(out, "the handler did not answer within {within:?}"),
            Self::Undecodable(error) => write!(out, "the request cannot be decoded: {error}"),
            Self::LongAnswer(length) => write!(out, "the answer is too long: {length} bytes"),
            Self::LongSynchronization(length) => {
                write!(out, "pods and containers are too long: over {length} bytes")
            }
            Self::ManyObjects(bytes) => {
                write!(out, "the request has too many objects: {bytes} bytes of memory")
            }
        }
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Undecodable(error)
    }
}

/// A call to the handler.
#[derive(Debug)]
pub(crate) enum Job {
    Configured(Runtime),
    Request { method: Method, payload: Vec<u8> },
    Disconnected,
}

/// Encoded answer to a job.
pub(crate) type Answer = Result<Vec<u8>, Fault>;

/// The handler, and the synchronization that is being received.
#[derive(Debug)]
pub(crate) struct Dispatcher<H> {
    handler: H,
    wanted: EventMask,
    chunks: Chunks,
}

#[derive(Debug, Default)]
struct Chunks {
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    /// Length of the encoded chunks.
    bytes: usize,
    /// Memory of their objects, bytes.
    objects: usize,
    /// First fault. What the chunks contain is then not kept, but the runtime must be able to send
    /// them all: it would close the connection otherwise, and send everything again on the next.
    fault: Option<Fault>,
}

impl Chunks {
    fn add(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.bytes += payload.len();
        if self.bytes > SYNCHRONIZE_LIMIT {
            return Err(Fault::LongSynchronization(self.bytes));
        }
        self.objects += size::objects_of::<SynchronizeRequest>(payload, SYNCHRONIZE_OBJECTS)?;
        if self.objects > SYNCHRONIZE_OBJECTS {
            return Err(Fault::ManyObjects(self.objects));
        }
        let request = SynchronizeRequest::decode(payload)?;
        self.pods.extend(request.pods);
        self.containers.extend(request.containers);
        Ok(())
    }
}

impl<H: Handler> Dispatcher<H> {
    pub(crate) fn new(handler: H, wanted: EventMask) -> Self {
        Self { handler, wanted, chunks: Chunks::default() }
    }

    pub(crate) fn run(&mut self, job: Job) -> Answer {
        match job {
            Job::Configured(runtime) => {
                self.chunks = Chunks::default();
                self.handler.configured(&runtime);
                Ok(Vec::new())
            }
            Job::Disconnected => {
                self.chunks = Chunks::default();
                self.handler.disconnected();
                Ok(Vec::new())
            }
            Job::Request { method, payload } => self.answer(method, &payload),
        }
    }

    fn answer(&mut self, method: Method, payload: &[u8]) -> Answer {
        match method {
            // Answered without the handler.
            Method::Configure | Method::Shutdown => Ok(Vec::new()),
            Method::Synchronize => self.synchronize(payload),
            Method::StateChange => {
                let change: StateChangeEvent = decode(payload)?;
                self.notify(change.event(), change.pod, change.container);
                Ok(Vec::new())
            }
            Method::Event(event) if !self.wanted.contains(event) => Ok(Vec::new()),
            Method::Event(event) => self.event(event, payload),
        }
    }

    fn event(&mut self, event: Event, payload: &[u8]) -> Answer {
        match event {
            Event::CreateContainer => self.create(decode(payload)?),
            Event::UpdateContainer => self.update(decode(payload)?),
            Event::StopContainer => self.stop(decode(payload)?),
            Event::UpdatePodSandbox => {
                let request: UpdatePodSandboxRequest = decode(payload)?;
                self.handler.update_pod(
                    request.pod.unwrap_or_default(),
                    request.overhead_linux_resources.unwrap_or_default(),
                    request.linux_resources.unwrap_or_default(),
                );
                Ok(Vec::new())
            }
            Event::ValidateContainerAdjustment => {
                self.handler.validate(decode(payload)?);
                Ok(Vec::new())
            }
            event => {
                // The requests of all other events have the same fields; those of pods lack the
                // container. Their answers are empty.
                let request: PostCreateContainerRequest = decode(payload)?;
                self.notify(event, request.pod, request.container);
                Ok(Vec::new())
            }
        }
    }

    fn synchronize(&mut self, payload: &[u8]) -> Answer {
        let mut chunks = mem::take(&mut self.chunks);
        let more = has_more(payload)?;
        if chunks.fault.is_none()
            && let Err(fault) = chunks.add(payload)
        {
            chunks = Chunks { fault: Some(fault), ..Chunks::default() };
        }
        if more {
            self.chunks = chunks;
            return Ok(chunk_answer());
        }
        let Chunks { pods, containers, fault, .. } = chunks;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let update = self.handler.synchronize(pods, containers);
        Ok(SynchronizeResponse { update, more }.encode_to_vec())
    }

    fn create(&mut self, request: CreateContainerRequest) -> Answer {
        let pod = request.pod.unwrap_or_default();
        let creation = self.handler.create_container(pod, request.container.unwrap_or_default());
        let response = CreateContainerResponse {
            adjust: creation.adjustment,
            update: creation.updates,
            evict: Vec::new(),
        };
        Ok(response.encode_to_vec())
    }

    fn update(&mut self, request: UpdateContainerRequest) -> Answer {
        let update = self.handler.update_container(
            request.pod.unwrap_or_default(),
            request.container.unwrap_or_default(),
            request.linux_resources.unwrap_or_default(),
        );
        Ok(UpdateContainerResponse { update, evict: Vec::new() }.encode_to_vec())
    }

    fn stop(&mut self, request: StopContainerRequest) -> Answer {
        let pod = request.pod.unwrap_or_default();
        let update = self.handler.stop_container(pod, request.container.unwrap_or_default());
        Ok(StopContainerResponse { update }.encode_to_vec())
    }

    fn notify(&mut self, event: Event, pod: Option<PodSandbox>, container: Option<Container>) {
        if self.wanted.contains(event) {
            self.handler.notify(event, pod.unwrap_or_default(), container);
        }
    }
}

/// Number of the field `more` in a request for a synchronization.
const MORE: u32 = 3;

/// Whether another request for a synchronization follows this one.
fn has_more(mut message: &[u8]) -> Result<bool, DecodeError> {
    let mut more = false;
    while !message.is_empty() {
        match decode_key(&mut message)? {
            (MORE, WireType::Varint) => more = decode_varint(&mut message)? != 0,
            (tag, wire_type) => {
                skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
            }
        }
    }
    Ok(more)
}

/// Whether a request for a synchronization is followed by another one.
pub(crate) fn is_chunk(payload: &[u8]) -> bool {
    has_more(payload).unwrap_or(false)
}

/// Answer to a request that is followed by another one: the runtime closes the connection unless it
/// gets its `more` back.
pub(crate) fn chunk_answer() -> Vec<u8> {
    SynchronizeResponse { update: Vec::new(), more: true }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subscribes to all events and adjusts nothing.
    #[derive(Debug)]
    struct Silent;

    impl Handler for Silent {
        fn events(&self) -> EventMask {
            EventMask::LIFECYCLE
        }
    }

    fn dispatcher() -> Dispatcher<Silent> {
        let all = EventMask::LIFECYCLE.with(Event::ValidateContainerAdjustment);
        Dispatcher::new(Silent, all)
    }

    #[test]
    fn methods_have_the_names_of_the_api() {
        for (name, method) in METHODS {
            assert_eq!(Method::parse(name), Some(method));
            assert_eq!(method.name(), name);
        }
        assert_eq!(Method::parse("createcontainer"), None);
        let proto = include_str!("../proto/api.proto");
        let service = proto.split("service Plugin {").nth(1).unwrap().split("\n}").next().unwrap();
        let names = service.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
        let names: Vec<_> = names.map(|line| line.split('(').next().unwrap()).collect();
        assert_eq!(names.len(), METHODS.len());
        assert!(names.iter().all(|name| Method::parse(name).is_some()), "{names:?}");
    }

    #[test]
    fn any_payload_of_any_method_is_answered_or_undecodable() {
        corpus::run(env!("CARGO_MANIFEST_DIR"), "payload", &[b"\x0a\x00", b"\x12\x00"], |bytes| {
            for (_, method) in METHODS {
                // An empty message takes two bytes of input, and a few hundred of memory.
                let limit = (64 << 10) + 4096 * bytes.len();
                let answer = corpus::within(limit, || dispatcher().answer(method, bytes));
                let is_expected =
                    matches!(answer, Ok(_) | Err(Fault::Undecodable(_) | Fault::ManyObjects(_)));
                assert!(is_expected, "{answer:?}");
            }
        });
    }

    #[test]
    fn a_synchronization_over_the_limit_is_taken_to_its_end_and_dropped_as_a_whole() {
        let container = Container { name: "x".repeat(1 << 20), ..Container::default() };
        let mut chunk =
            SynchronizeRequest { pods: Vec::new(), containers: vec![container], more: true };
        let payload = chunk.encode_to_vec();
        let mut dispatcher = dispatcher();
        for _ in 0..2 * SYNCHRONIZE_LIMIT / payload.len() {
            let answer = dispatcher.answer(Method::Synchronize, &payload);
            assert_eq!(answer, Ok(chunk_answer()));
        }
        assert!(dispatcher.chunks.containers.is_empty());
        chunk.more = false;
        let last = chunk.encode_to_vec();
        let fault = dispatcher.answer(Method::Synchronize, &last).unwrap_err();
        assert!(matches!(fault, Fault::LongSynchronization(_)), "{fault}");
        assert!(dispatcher.answer(Method::Synchronize, &last).is_ok(), "another synchronization");
    }

    #[test]
    fn a_synchronization_of_empty_containers_is_dropped_before_it_takes_memory() {
        // Field 2 with length 0: over two million containers in 4 MiB.
        let payload = b"\x12\x00".repeat(2 << 20);
        let mut dispatcher = dispatcher();
        let answer = corpus::within(64 << 10, || dispatcher.answer(Method::Synchronize, &payload));
        assert!(matches!(answer, Err(Fault::ManyObjects(_))), "{answer:?}");
        let few = b"\x12\x00".repeat(1000);
        let mut chunk = few.clone();
        chunk.extend_from_slice(b"\x18\x01");
        for _ in 0..50 {
            assert_eq!(dispatcher.answer(Method::Synchronize, &chunk), Ok(chunk_answer()));
        }
        let fault = dispatcher.answer(Method::Synchronize, &few).unwrap_err();
        assert!(matches!(fault, Fault::ManyObjects(_)), "{fault}");
    }

    #[test]
    fn a_chunk_is_detected_as_by_the_decoder() {
        let request = |more| SynchronizeRequest {
            more,
            containers: vec![Container::default()],
            ..SynchronizeRequest::default()
        };
        assert!(is_chunk(&request(true).encode_to_vec()));
        assert!(!is_chunk(&request(false).encode_to_vec()));
        for payload in
            [&b""[..], b"\x18\x00", b"\x18\x01\x18\x00", b"\x18\xff", b"\x1a\x00", b"\xff"]
        {
            let decoded = SynchronizeRequest::decode(payload).is_ok_and(|request| request.more);
            assert_eq!(is_chunk(payload), decoded, "{payload:?}");
        }
    }
}
