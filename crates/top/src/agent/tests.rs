use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use agent_client::{AgentArgs, ConnectionArgs};
use api::{ContainerFrame, Measure, PodName};

use super::*;

#[test]
fn events_are_split_at_empty_lines_wherever_the_parts_end() {
    let text = ":\n\nevent: frame\nid: 1\ndata: {\"atMs\":1000}\n\nevent: frame\ndata: {\"atMs\":2000}\n\n";
    for length in 1..text.len() {
        let mut events = EventSplitter::default();
        let frames = text.as_bytes().chunks(length).flat_map(|part| events.add(part));
        let times: Vec<u64> = frames.map(|frame| frame.at_ms).collect();
        assert_eq!(times, [1000, 2000], "parts of {length} bytes");
    }
}

/// Answers the requests of two connections: each stream ends after one frame.
fn serve_twice(listener: &TcpListener) {
    let mut frames = 0;
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let body = if request.starts_with("GET /api/v1/stream ") {
            frames += 1;
            format!("event: frame\ndata: {{\"atMs\":{}}}\n\n", 1000 * frames)
        } else if request.starts_with("GET /api/v1/history?") {
            format!("{{\"atMs\":[{}],\"seconds\":[1],\"containers\":[]}}", 1000 * frames)
        } else {
            "{\"containers\":[]}".to_owned()
        };
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    }
}

#[test]
fn the_history_is_requested_again_after_an_interruption() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    std::thread::spawn(move || serve_twice(&listener));
    let connection = ConnectionArgs::default();
    let args = AgentArgs { address, tls_cert: None, connection };
    let client = AgentClient::new(&args).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let remote = Remote::start(client);
    let next = || loop {
        match remote.updates.recv_timeout(Duration::from_secs(60)).unwrap() {
            Update::History(points) => return ("history", points.at_ms[0]),
            Update::Frame(frame) => return ("frame", frame.at_ms),
            _ => {}
        }
    };
    let expected = [("history", 1000), ("frame", 1000), ("history", 2000), ("frame", 2000)];
    assert_eq!([next(), next(), next(), next()], expected);
}

/// Containers of the busy node: 300 pods, 30 of them with two.
const MANY: usize = 330;

/// Answers like an agent with many containers: too many values are rejected, and a second
/// passes from one answer to the next.
fn serve_many(listener: &TcpListener) {
    let pod = |number: usize| format!("pod-{number:03}");
    let mut last = 1000;
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let request = String::from_utf8(request).unwrap();
        let path = request.split(' ').nth(1).unwrap();
        let uids: Vec<&str> = path.split("&uid=").skip(1).collect();
        let is_selected = |uid: &str| uids.is_empty() || uids.contains(&uid);
        let rows = (0..MANY).map(|number| (pod(number % 300), format!("c{}", number / 300)));
        let rows: Vec<_> = rows.filter(|(uid, _)| is_selected(uid)).collect();
        let (status, body) = if path == "/api/v1/frame" {
            let row = |(uid, container)| ContainerFrame { uid, container, ..Default::default() };
            let containers = rows.into_iter().map(row).collect();
            ("200 OK", serde_json::to_string(&Frame { containers, ..Frame::default() }))
        } else if rows.len() * (10 + 6) * 300 > 500_000 {
            ("400 Bad Request", Ok("{\"error\":\"too many\"}".to_owned()))
        } else {
            assert!(path.contains("seconds=300&aggressors=6"), "{path}");
            last += 1;
            let at_ms: Vec<u64> = (last - 299..=last).map(|second| 1000 * second).collect();
            // The value in both is the second.
            let values: Vec<_> = at_ms.iter().map(|at| Some(*at as f64 / 1000.0)).collect();
            let pair = |pod: &str| PairSeries {
                victim: PodName { namespace: String::new(), pod: pod.to_owned() },
                wait: values.clone(),
                ..PairSeries::default()
            };
            let pairs = rows.iter().filter(|(_, name)| name == "c0").map(|(uid, _)| pair(uid));
            let pairs = pairs.collect();
            let series = |(pod, container)| Series {
                pod,
                container,
                measures: BTreeMap::from([(Measure::UsageCores, values.clone())]),
                ..Series::default()
            };
            let containers = rows.into_iter().map(series).collect();
            let seconds = vec![1.0; 300];
            ("200 OK", serde_json::to_string(&Points { at_ms, seconds, containers, pairs }))
        };
        let (body, length) = (body.as_ref().unwrap(), body.as_ref().unwrap().len());
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    }
}

#[test]
fn a_node_with_many_containers_has_its_five_minutes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    std::thread::spawn(move || serve_many(&listener));
    let args = AgentArgs { address, tls_cert: None, connection: ConnectionArgs::default() };
    let client = AgentClient::new(&args).unwrap();
    let update = block_on(async { Ok(history(&client, "").await) }).unwrap();
    let Some(Update::History(points)) = update else { panic!("{update:?}") };
    assert_eq!((points.at_ms.len(), points.containers.len()), (300, MANY));
    assert_eq!(points.pairs.len(), 300);
    let names: BTreeSet<_> =
        points.containers.iter().map(|row| (&row.pod, &row.container)).collect();
    assert_eq!(names.len(), MANY, "a container is there twice");
    let series = points.containers.iter().map(|row| &row.measures[&Measure::UsageCores]);
    let mut known = 0;
    for values in series.chain(points.pairs.iter().map(|pair| &pair.wait)) {
        assert_eq!(values.len(), 300);
        for (value, at_ms) in values.iter().zip(&points.at_ms) {
            assert!(value.is_none_or(|value| value == *at_ms as f64 / 1000.0));
            known += usize::from(value.is_some());
        }
    }
    // Later answers no longer have the oldest seconds.
    assert!(known > (MANY + 300) * 295, "{known}");
}

/// Answers for a node whose second is the value of its throttled time, and which has the seconds
/// from 100 on.
fn serve_past(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let path = request.split(' ').nth(1).unwrap();
        let until = path.split_once("until=").map(|(_, until)| until.parse::<u64>().unwrap());
        let at_ms = until.unwrap_or(900_000);
        let (status, body) = match path.split('?').next().unwrap() {
            "/api/v1/node" => ("200 OK", node_answer()),
            _ if at_ms < 100_000 => ("404 Not Found", r#"{"error":"no data of then"}"#.into()),
            "/api/v1/stream" => ("200 OK", format!("event: frame\ndata: {{\"atMs\":{at_ms}}}\n\n")),
            "/api/v1/frame" => ("200 OK", format!("{{\"atMs\":{at_ms}}}")),
            "/api/v1/history" => {
                ("200 OK", format!(r#"{{"atMs":[{at_ms}],"seconds":[1],"containers":[]}}"#))
            }
            _ => ("200 OK", r#"{"containers":[]}"#.to_owned()),
        };
        let length = body.len();
        // The stream stays open.
        let length = if path.ends_with("stream") { 1_000_000 } else { length };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        if path.ends_with("stream") {
            std::mem::forget(stream);
        }
    }
}

fn node_answer() -> String {
    r#"{"version":"1","revision":"","recording":false,"atMs":900000,"node":{},"features":[],
    "agent":{"sampleIntervalSeconds":1,"samples":1,"faults":[],"podSources":[],
    "eventStreams":1},"history":{"frames":600,"bytesPerContainer":1,"bytesPerPair":1,
    "dropped":0,"beginMs":100000}}"#
        .to_owned()
}

#[test]
fn a_live_view_goes_back_and_returns() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    std::thread::spawn(move || serve_past(&listener));
    let args = AgentArgs { address, tls_cert: None, connection: ConnectionArgs::default() };
    let client = AgentClient::new(&args).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let mut remote = Remote::start(client);
    fn next(remote: &mut Remote, wanted: impl Fn(&Update) -> Option<u64>) -> u64 {
        let began = Instant::now();
        loop {
            if let Some(found) = remote.updates().iter().find_map(&wanted) {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no such update");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let frame = |update: &Update| match update {
        Update::Frame(frame) => Some(frame.at_ms),
        _ => None,
    };
    let past = |update: &Update| match update {
        Update::Past(points, frame) => {
            assert_eq!(points.at_ms, [frame.at_ms], "the history ends with the frame");
            Some(frame.at_ms)
        }
        _ => None,
    };
    assert_eq!(next(&mut remote, frame), 900_000);
    remote.control(Control::Step(-60));
    assert_eq!(next(&mut remote, past), 840_000);
    remote.control(Control::Step(-10));
    assert_eq!(next(&mut remote, past), 830_000);
    remote.control(Control::At("-10m".parse().unwrap()));
    assert_eq!(next(&mut remote, past), 300_000);
    remote.control(Control::Start);
    assert_eq!(next(&mut remote, past), 101_000);
    remote.control(Control::At("1970-01-01T00:00:50Z".parse().unwrap()));
    let status = |update: &Update| match update {
        Update::Status(text) => Some(u64::from(text.contains("no data of then"))),
        _ => None,
    };
    assert_eq!(next(&mut remote, status), 1);
    remote.control(Control::End);
    let live = |update: &Update| (*update == Update::Live).then_some(0);
    next(&mut remote, live);
}

#[test]
fn unknown_events_are_ignored() {
    let mut events = EventSplitter::default();
    assert!(events.add(b"event: later\ndata: {}\n\nretry: 5\n\n").is_empty());
}
