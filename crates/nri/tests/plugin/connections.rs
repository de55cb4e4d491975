//! Ends of connections, and what comes after them.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nri::{Error, EventMask, Plugin, Stop, api};
use prost::Message;

use crate::node::{Node, recorder};
use crate::runtime::{CALL_TIMEOUT, RESPONSE, RUNTIME, Response, Runtime, Status, message};

#[test]
fn a_runtime_that_starts_again_is_synchronized_with_what_now_runs() {
    let mut node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &["a"]);
    runtime.create("b");
    node.calls::<3>();
    drop(runtime);
    node.listen_again();
    let mut runtime = Runtime::start(&node.listener, &["b", "c"]);
    assert_eq!(node.calls(), ["disconnected", "configured containerd v2.4.2", "synchronize 1 b,c"]);
    assert!(runtime.create("d").adjust.is_some());
    assert_eq!(node.report(), "synchronized with containerd v2.4.2");
    assert_eq!(node.report(), "the runtime closed the connection; retry in 100ms");
}

#[test]
fn after_a_failed_configuration_only_events_of_every_runtime_are_requested() {
    let node = Node::new();
    let events = |runtime: &mut Runtime| {
        runtime.register();
        let answer = runtime.configure("v2.4.2", "v0.12.3");
        api::ConfigureResponse::decode(&answer[..]).unwrap().events
    };
    // A runtime that closes the connection after the answer, and one that accepts the next one.
    assert_eq!(events(&mut Runtime::accept(&node.listener)), 0x3fff);
    let mut runtime = Runtime::accept(&node.listener);
    assert_eq!(events(&mut runtime), 0x7ff);
    runtime.synchronize(&["a"], false);
    drop(runtime);
    // The runtime may be another one from here on.
    assert_eq!(events(&mut Runtime::accept(&node.listener)), 0x3fff);
    assert_eq!(events(&mut Runtime::accept(&node.listener)), 0x7ff);
    assert_eq!(events(&mut Runtime::accept(&node.listener)), 0x3fff, "another reason");
}

#[test]
fn chunks_of_a_broken_connection_are_forgotten() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    runtime.configure("v2.4.2", "v0.12.3");
    assert!(runtime.synchronize(&["a", "b"], true).more);
    drop(runtime);
    Runtime::start(&node.listener, &["c"]);
    let calls: [String; 4] = node.calls();
    assert_eq!(calls[3], "synchronize 1 c");
}

#[test]
fn an_absent_socket_is_reported_with_its_path_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nri.sock");
    let (recorder, _calls, _release) = recorder(EventMask::LIFECYCLE);
    let plugin = Plugin::new("recorder", 90, &socket, recorder).unwrap();
    let (stop, mut reports) = (Stop::new(), Vec::new());
    let ended = plugin.run(&stop, |report| {
        reports.push(report.to_string());
        if reports.len() == 2 {
            stop.stop();
        }
    });
    ended.unwrap();
    let error = format!("failed to connect to {}: No such file or directory", socket.display());
    let expected = ["100ms", "200ms"].map(|time| format!("{error} (os error 2); retry in {time}"));
    assert_eq!(reports, expected);
}

#[test]
fn a_rejected_registration_is_reported_with_the_runtimes_message() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    let (stream, _, _) = runtime.receive(RUNTIME);
    let status = Some(Status { code: 2, message: "invalid plugin name".into() });
    let response = Response { status, payload: Vec::new() }.encode_to_vec();
    runtime.send(RUNTIME, &message(stream, RESPONSE, &response));
    let expected = "the runtime rejected the registration: invalid plugin name (code 2); retry in";
    let report = node.report();
    assert!(report.starts_with(expected), "{report}");
    Runtime::start(&node.listener, &[]);
}

#[test]
fn a_runtime_that_does_not_synchronize_is_left_after_the_time_limit() {
    let within = Duration::from_millis(500);
    let node = Node::with(EventMask::LIFECYCLE, |plugin| plugin.register_within(within));
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    runtime.wait_closed();
    assert_eq!(
        node.report(),
        "the runtime did not synchronize the plugin within 500ms; retry in 100ms"
    );
}

#[test]
fn a_stop_ends_a_connected_plugin() {
    let mut node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.stop.stop();
    node.join();
    runtime.wait_closed();
    let calls: [String; 3] = node.calls();
    assert_eq!(calls[2], "disconnected");
}

#[test]
fn a_stop_ends_a_plugin_whose_handler_hangs() {
    let within = Duration::from_secs(2);
    let mut node = Node::with(EventMask::LIFECYCLE, |plugin| plugin.answer_within(within));
    let mut runtime = Runtime::start(&node.listener, &[]);
    runtime.create("hangs");
    runtime.wait_closed();
    node.stop.stop();
    node.join();
}

/// A runtime that hangs, with a full queue of connections: a further one waits without end.
const FULL_SOCKET: &str = "
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(0)
first = socket.socket(socket.AF_UNIX)
first.connect(sys.argv[1])
print('full', flush=True)
sys.stdin.read()
";

#[test]
fn a_stop_ends_a_plugin_that_waits_for_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nri.sock");
    let mut python = Command::new("python3");
    python.args(["-c", FULL_SOCKET]).arg(&socket);
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut runtime = python.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(runtime.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "full\n");

    let (recorder, _calls, _release) = recorder(EventMask::LIFECYCLE);
    let plugin = Plugin::new("recorder", 90, &socket, recorder).unwrap();
    let (stop, (ended, end)) = (Stop::new(), channel());
    let stopped = stop.clone();
    thread::spawn(move || ended.send(plugin.run(&stopped, |_| ()).is_ok()));
    stop.stop();
    assert_eq!(end.recv_timeout(CALL_TIMEOUT), Ok(true), "the plugin hangs");
    drop(runtime.stdin.take());
    runtime.wait().unwrap();
}

#[test]
fn a_plugin_serves_a_connection_that_it_was_given() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (recorder, calls, _release) = recorder(EventMask::LIFECYCLE);
    let plugin = Plugin::new("recorder", 90, nri::DEFAULT_SOCKET.as_ref(), recorder).unwrap();
    let served = thread::spawn(move || plugin.serve(&ours, &Stop::new(), |_| ()));
    let mut runtime = Runtime::on(theirs);
    runtime.register();
    runtime.configure("v2.4.2", "v0.12.3");
    runtime.synchronize(&["a"], false);
    drop(runtime);
    assert!(matches!(served.join().unwrap(), Error::Closed));
    let calls: Vec<_> = calls.iter().collect();
    let expected = ["configured containerd v2.4.2", "synchronize 1 a", "disconnected"];
    assert_eq!(calls, expected);
}
