//! Bytes that no runtime should send, and handlers that do not do as they should.

use std::time::Duration;

use nri::EventMask;
use nri::api::{self, CreateContainerResponse, SynchronizeRequest, SynchronizeResponse};
use prost::Message;

use crate::node::Node;
use crate::runtime::{PLUGIN, REQUEST, Request, Runtime, container, frame, message, pod, request};

fn create(name: &str) -> Vec<u8> {
    let (pod, container) = (Some(pod()), Some(container(name)));
    request("CreateContainer", &api::CreateContainerRequest { pod, container })
}

#[test]
fn a_request_in_frames_and_writes_of_one_byte_is_answered() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    let stream = runtime.next_stream();
    for byte in message(stream, REQUEST, &create("c")) {
        for part in frame(PLUGIN, &[byte]).chunks(1) {
            runtime.send_bytes(part);
        }
    }
    let answer = runtime.response(stream);
    assert!(CreateContainerResponse::decode(&answer.payload[..]).unwrap().adjust.is_some());
}

#[test]
fn frames_of_unknown_connections_are_skipped() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    for connection in [0, 3, u32::MAX] {
        runtime.send_bytes(&frame(connection, &message(1, REQUEST, &create("unseen"))));
    }
    assert!(runtime.create("seen").adjust.is_some());
    node.calls::<2>();
    assert_eq!(node.call(), "create pod/seen");
}

#[test]
fn answers_of_any_length_fit_into_gos_buffers() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    let lengths = (3900..4200).step_by(7).chain([8100, 8192, 100_000, 2 << 20, (4 << 20) - 100]);
    for length in lengths {
        let answer = runtime.create(&format!("env-{length}"));
        assert_eq!(answer.adjust.unwrap().env[0].value.len(), length);
    }
}

#[test]
fn an_answer_over_the_limit_is_replaced_by_an_empty_one() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.report();
    assert_eq!(runtime.create("env-4194304"), CreateContainerResponse::default());
    let report = node.report();
    assert!(report.starts_with("empty answer to CreateContainer: the answer is too long: 4194"));
    assert!(runtime.create("c").adjust.is_some());
}

#[test]
fn a_handler_that_panics_is_answered_empty_and_stays_connected() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.report();
    assert_eq!(runtime.create("panics"), CreateContainerResponse::default());
    assert_eq!(node.report(), "empty answer to CreateContainer: the handler panicked: on purpose");
    assert!(runtime.create("c").adjust.is_some());
}

#[test]
fn after_a_late_answer_the_plugin_reconnects_when_the_call_ends() {
    let within = Duration::from_secs(3);
    let node = Node::with(EventMask::LIFECYCLE, |plugin| plugin.answer_within(within));
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.report();
    node.calls::<2>();
    assert_eq!(runtime.create("hangs"), CreateContainerResponse::default());
    let late = "the handler did not answer";
    assert_eq!(node.report(), format!("empty answer to CreateContainer: {late} within 3s"));
    runtime.wait_closed();
    assert!(node.report().starts_with(&format!("{late} CreateContainer within 3s; retry in")));
    assert_eq!(node.call(), "create pod/hangs");
    node.listener.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    assert!(node.listener.accept().is_err(), "connected while the handler hangs");
    node.listener.set_nonblocking(false).unwrap();
    node.release.send(()).unwrap();
    let mut runtime = Runtime::start(&node.listener, &["hangs"]);
    assert_eq!(
        node.calls(),
        ["disconnected", "configured containerd v2.4.2", "synchronize 1 hangs"]
    );
    assert!(runtime.create("c").adjust.is_some());
}

#[test]
fn a_late_answer_to_an_event_keeps_the_connection() {
    let within = Duration::from_millis(100);
    let node = Node::with(EventMask::LIFECYCLE, |plugin| plugin.answer_within(within));
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.report();
    node.calls::<2>();
    let (pod, container) = (Some(pod()), Some(container("hangs")));
    let stop = api::StopContainerRequest { pod: pod.clone(), container: container.clone() };
    let _: api::StopContainerResponse = runtime.call("StopContainer", &stop);
    let late = "the handler did not answer within 100ms";
    assert_eq!(node.report(), format!("empty answer to StopContainer: {late}"));
    assert_eq!(node.call(), "stop hangs");
    node.release.send(()).unwrap();
    let event = api::Event::RemoveContainer.into();
    let change = api::StateChangeEvent { event, pod, container };
    let _: api::Empty = runtime.call("StateChange", &change);
    assert_eq!(node.report(), format!("empty answer to StateChange: {late}"));
    assert_eq!(node.call(), "RemoveContainer pod/hangs");
    node.release.send(()).unwrap();
    // On the same connection, without another synchronization.
    assert!(!runtime.synchronize(&["after"], false).more);
    assert_eq!(node.call(), "synchronize 1 after");
}

#[test]
fn a_late_chunk_of_a_synchronization_does_not_end_it() {
    let within = Duration::from_millis(100);
    let node = Node::with(EventMask::LIFECYCLE, |plugin| plugin.answer_within(within));
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    runtime.configure("hangs", "v0.12.3");
    let late = "the handler did not answer within 100ms";
    assert_eq!(node.report(), format!("empty answer to Configure: {late}"));
    let chunk = SynchronizeRequest {
        containers: vec![container("a")],
        more: true,
        ..SynchronizeRequest::default()
    };
    let mut chunk = Request::decode(&request("Synchronize", &chunk)[..]).unwrap();
    chunk.timeout_nano = 200_000_000;
    let answer = runtime.exchange(&chunk.encode_to_vec());
    assert!(SynchronizeResponse::decode(&answer.payload[..]).unwrap().more);
    assert_eq!(node.report(), format!("empty answer to Synchronize: {late}"));
    node.release.send(()).unwrap();
    assert!(!runtime.synchronize(&["b"], false).more);
    assert_eq!(node.report(), "synchronized with containerd hangs");
    assert_eq!(node.calls(), ["configured containerd hangs", "synchronize 1 a,b"]);
}

#[test]
fn a_synchronization_over_the_limit_is_reported_once_and_ends() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    runtime.configure("v2.4.2", "v0.12.3");
    // The name is in the id, too.
    let name = "x".repeat(2_000_000);
    for _ in 0..10 {
        assert!(runtime.synchronize(&[&name], true).more);
    }
    assert_eq!(runtime.synchronize(&["last"], false), SynchronizeResponse::default());
    let report = node.report();
    let expected = "empty answer to Synchronize: pods and containers are too long: over 3";
    assert!(report.starts_with(expected), "{report}");
    assert_eq!(node.report(), "synchronized with containerd v2.4.2");
    assert!(runtime.create("c").adjust.is_some());
    assert_eq!(node.calls(), ["configured containerd v2.4.2", "create pod/c"]);
}

#[test]
fn unknown_methods_and_services_are_unimplemented() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    let other = Request { service: "other.Service".into(), ..Request::default() };
    let unknown = [request("Unknown", &api::Empty {}), other.encode_to_vec()];
    for payload in unknown {
        let status = runtime.exchange(&payload).status.unwrap();
        assert_eq!(status.code, 12);
        assert!(status.message.ends_with(" is not implemented"), "{}", status.message);
    }
    assert!(runtime.create("c").adjust.is_some());
}

#[test]
fn a_payload_that_cannot_be_decoded_is_answered_empty() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.report();
    let mut broken = Request::decode(&create("c")[..]).unwrap();
    broken.payload.truncate(3);
    let response = runtime.exchange(&broken.encode_to_vec());
    assert_eq!((response.status, response.payload), (None, Vec::new()));
    let report = node.report();
    let expected = "empty answer to CreateContainer: the request cannot be decoded: ";
    assert!(report.starts_with(expected), "{report}");
    assert!(runtime.create("c").adjust.is_some());
}

#[test]
fn protocol_errors_end_the_connection_but_not_the_plugin() {
    let long_frame = [1_u32.to_be_bytes(), 4_194_315_u32.to_be_bytes()].concat();
    let mut long_message = message(1, REQUEST, &[]);
    long_message[..4].copy_from_slice(&u32::MAX.to_be_bytes());
    let cases = [
        (long_frame, "a frame of 4194315 bytes, longer than 4194314"),
        (frame(PLUGIN, &long_message), "a message of 4294967295 bytes, longer than 4194304"),
        (
            frame(PLUGIN, &message(2, REQUEST, &create("c"))),
            "a request on stream 2: a client's streams have odd numbers",
        ),
        (frame(PLUGIN, &message(9, REQUEST, &[0xff; 4])), "Request: "),
    ];
    let node = Node::new();
    for (bytes, error) in cases {
        let mut runtime = Runtime::start(&node.listener, &[]);
        assert_eq!(node.report(), "synchronized with containerd v2.4.2");
        runtime.send_bytes(&bytes);
        runtime.wait_closed();
        let report = node.report();
        assert!(report.starts_with(&format!("protocol error of the runtime: {error}")), "{report}");
    }
}
