//! The runtime's end of a connection, independent of the crate's own codec. Reads as the Go library
//! does: through a buffer of 4096 bytes, from a connection that fails when a frame does not fit.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nri::api;
use prost::Message;

/// Connection on which the runtime calls the plugin.
pub(crate) const PLUGIN: u32 = 1;
/// Connection on which the plugin calls the runtime.
pub(crate) const RUNTIME: u32 = 2;

pub(crate) const REQUEST: u8 = 1;
pub(crate) const RESPONSE: u8 = 2;

/// Length of Go's buffers.
const GO_BUFFER: usize = 4096;
/// Frames of one connection that the Go library queues before it closes the trunk.
const GO_QUEUE: usize = 256;

/// A test fails when it waits longer.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    pub(crate) timeout_nano: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// A message: number of its stream, kind, payload.
pub(crate) type Received = (u32, u8, Vec<u8>);

/// Go's `bufio.Reader` over one connection.
#[derive(Default)]
struct GoReader {
    frames: VecDeque<Vec<u8>>,
    buffer: VecDeque<u8>,
}

/// A runtime's end of one connection.
pub(crate) struct Runtime {
    stream: UnixStream,
    plugin: GoReader,
    runtime: GoReader,
    next_stream: u32,
}

/// A whole message with its header.
pub(crate) fn message(stream: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn frame(connection: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = connection.to_be_bytes().to_vec();
    bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A request to the plugin service.
pub(crate) fn request(method: &str, payload: &impl Message) -> Vec<u8> {
    let request = Request {
        service: "nri.pkg.api.v1alpha1.Plugin".into(),
        method: method.into(),
        payload: payload.encode_to_vec(),
        timeout_nano: 120_000_000_000,
    };
    request.encode_to_vec()
}

impl Runtime {
    pub(crate) fn accept(listener: &UnixListener) -> Self {
        Self::on(listener.accept().unwrap().0)
    }

    pub(crate) fn on(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(CALL_TIMEOUT)).unwrap();
        let (plugin, runtime) = (GoReader::default(), GoReader::default());
        Self { stream, plugin, runtime, next_stream: 1 }
    }

    /// Accepts the registration, configures and synchronizes.
    pub(crate) fn start(listener: &UnixListener, containers: &[&str]) -> Self {
        let mut runtime = Self::accept(listener);
        runtime.register();
        runtime.configure("v2.4.2", "v0.12.3");
        runtime.synchronize(containers, false);
        runtime
    }

    pub(crate) fn register(&mut self) -> api::RegisterPluginRequest {
        let (stream, kind, payload) = self.receive(RUNTIME);
        assert_eq!((stream, kind), (1, REQUEST));
        let request = Request::decode(&payload[..]).unwrap();
        assert_eq!(request.service, "nri.pkg.api.v1alpha1.Runtime");
        assert_eq!(request.method, "RegisterPlugin");
        self.send(RUNTIME, &message(stream, RESPONSE, &[]));
        api::RegisterPluginRequest::decode(&request.payload[..]).unwrap()
    }

    /// Configures the plugin as a containerd of the given version. Returns the encoded answer.
    pub(crate) fn configure(&mut self, version: &str, nri_version: &str) -> Vec<u8> {
        let request = api::ConfigureRequest {
            runtime_name: "containerd".into(),
            runtime_version: version.into(),
            registration_timeout: 5000,
            request_timeout: 2000,
            nri_version: nri_version.into(),
            ..api::ConfigureRequest::default()
        };
        self.call_encoded("Configure", &request)
    }

    /// Sends one chunk of a synchronization.
    pub(crate) fn synchronize(
        &mut self,
        containers: &[&str],
        more: bool,
    ) -> api::SynchronizeResponse {
        let containers = containers.iter().map(|name| container(name)).collect();
        self.call("Synchronize", &api::SynchronizeRequest { pods: vec![pod()], containers, more })
    }

    pub(crate) fn create(&mut self, name: &str) -> api::CreateContainerResponse {
        let (pod, container) = (Some(pod()), Some(container(name)));
        self.call("CreateContainer", &api::CreateContainerRequest { pod, container })
    }

    /// Calls the plugin, which must not answer with an error.
    pub(crate) fn call<A: Message + Default>(&mut self, method: &str, payload: &impl Message) -> A {
        A::decode(&self.call_encoded(method, payload)[..]).unwrap()
    }

    fn call_encoded(&mut self, method: &str, payload: &impl Message) -> Vec<u8> {
        let response = self.exchange(&request(method, payload));
        assert_eq!(response.status, None, "{method} must never fail");
        response.payload
    }

    /// Sends a request's payload on a new stream and returns the response to it.
    pub(crate) fn exchange(&mut self, payload: &[u8]) -> Response {
        let stream = self.next_stream();
        self.send(PLUGIN, &message(stream, REQUEST, payload));
        self.response(stream)
    }

    pub(crate) fn response(&mut self, expected: u32) -> Response {
        let (stream, kind, payload) = self.receive(PLUGIN);
        assert_eq!((stream, kind), (expected, RESPONSE));
        Response::decode(&payload[..]).unwrap()
    }

    pub(crate) fn next_stream(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// Sends a message in the frames of Go's buffered writer.
    pub(crate) fn send(&mut self, connection: u32, message: &[u8]) {
        let (first, rest) = message.split_at(message.len().min(GO_BUFFER));
        self.send_bytes(&frame(connection, first));
        if !rest.is_empty() {
            self.send_bytes(&frame(connection, rest));
        }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Waits until the plugin has closed the connection; drops what it sent before.
    pub(crate) fn wait_closed(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the plugin did not close the connection: {error}"),
            }
        }
    }

    /// The plugin's next message on a connection.
    pub(crate) fn receive(&mut self, connection: u32) -> Received {
        let header = self.read_full(connection, 10);
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let length = number(0) as usize;
        assert!(length <= 4 << 20, "a message of {length} bytes");
        assert_eq!(header[9], 0, "flags of a unary call");
        (number(4), header[8], self.read_full(connection, length))
    }

    /// Go's `io.ReadFull` on its buffered reader.
    fn read_full(&mut self, connection: u32, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let left = length - bytes.len();
            if !self.reader(connection).buffer.is_empty() {
                let buffer = &mut self.reader(connection).buffer;
                let count = left.min(buffer.len());
                bytes.extend(buffer.drain(..count));
            } else if left >= GO_BUFFER {
                bytes.extend(self.read_frame(connection, left));
            } else {
                let frame = self.read_frame(connection, GO_BUFFER);
                self.reader(connection).buffer.extend(frame);
            }
        }
        bytes
    }

    /// Go's `conn.Read` of the multiplexed connection.
    fn read_frame(&mut self, connection: u32, capacity: usize) -> Vec<u8> {
        while self.reader(connection).frames.is_empty() {
            let mut header = [0; 8];
            self.stream.read_exact(&mut header).unwrap();
            let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            let mut payload = vec![0; number(4) as usize];
            self.stream.read_exact(&mut payload).unwrap();
            self.reader(number(0)).frames.push_back(payload);
        }
        let frames = &mut self.reader(connection).frames;
        assert!(frames.len() <= GO_QUEUE, "failed to queue payload for reading");
        let frame = frames.pop_front().unwrap();
        assert!(frame.len() <= capacity, "ENOMEM: {} bytes into {capacity}", frame.len());
        frame
    }

    fn reader(&mut self, connection: u32) -> &mut GoReader {
        match connection {
            PLUGIN => &mut self.plugin,
            RUNTIME => &mut self.runtime,
            other => panic!("the plugin sent a frame on connection {other}"),
        }
    }
}

pub(crate) fn pod() -> api::PodSandbox {
    api::PodSandbox { id: "sandbox".into(), name: "pod".into(), ..api::PodSandbox::default() }
}

pub(crate) fn container(name: &str) -> api::Container {
    let (id, pod_sandbox_id) = (format!("id-{name}"), "sandbox".into());
    api::Container { id, pod_sandbox_id, name: name.into(), ..api::Container::default() }
}
