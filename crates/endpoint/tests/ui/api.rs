//! The page and the JSON API over real connections.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use api::{
    AdviceReport, ContainerFrame, ContainerReport, CpuAdvice, Finding, FindingKind, Frame, Gogc,
    Injected, InjectionStatus, Interference, Language, LimitAdvice, MemoryAdvice, NodeFrame,
    PodName, Rates, Runtime, Severity, Workload,
};
use serde_json::{Value, json};
use timeline::recording::{Origin, Recording, Ring, RingConfig};

use crate::schema::{assert_valid, schema};
use crate::support::{HOSTILE, Server, from};

const OPENAPI: &str = include_str!("../../assets/openapi.json");

/// Paths with all their parameters.
const CALLS: &[(&str, &str)] = &[
    ("/api/v1/node", "/api/v1/node"),
    ("/api/v1/pods", "/api/v1/pods"),
    ("/api/v1/pods/{uid}", "/api/v1/pods/uid-1?seconds=600"),
    ("/api/v1/topology", "/api/v1/topology"),
    ("/api/v1/interference", "/api/v1/interference?seconds=10"),
    ("/api/v1/advice", "/api/v1/advice"),
    ("/api/v1/pins", "/api/v1/pins"),
    (
        "/api/v1/history",
        "/api/v1/history?seconds=5&uid=uid-0&measure=self&measure=usageCores&aggressors=3",
    ),
    ("/api/v1/overview", "/api/v1/overview?seconds=5&points=3"),
    ("/api/v1/doctor", "/api/v1/doctor"),
    ("/api/v1/frame", "/api/v1/frame"),
    ("/api/v1/frame", "/api/v1/frame?seconds=5&until=1700000008000"),
    ("/api/v1/pods", "/api/v1/pods?seconds=5&until=1700000008000"),
    ("/api/v1/pods/{uid}", "/api/v1/pods/uid-1?seconds=5&until=1700000008000&points=2"),
    ("/api/v1/interference", "/api/v1/interference?seconds=5&until=1700000008000"),
];

#[test]
fn every_answer_matches_the_served_openapi_document() {
    let server = Server::start(3, true).ten_seconds();
    let document = server.json("/api/v1/openapi.json");
    assert_eq!(document, serde_json::from_str::<Value>(OPENAPI).unwrap());
    for (path, call) in CALLS {
        assert_valid(&document, path, "200", &server.json(call));
    }
    let documented: BTreeSet<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut tested: BTreeSet<&str> = CALLS.iter().map(|(path, _)| *path).collect();
    tested.extend(["/api/v1/stream", "/api/v1/recording", "/api/v1/openapi.json"]);
    assert_eq!(documented, tested);
}

#[test]
fn a_recording_covers_the_requested_seconds() {
    let server = Server::start(1, true);
    let (status, _, body) = server.get("/api/v1/recording");
    assert!(status == 503 && body.contains("no data yet"), "{status} {body}");
    let server = server.ten_seconds();
    assert_eq!(seconds(&server, "seconds=7"), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(seconds(&server, "seconds=3&until=1700000005000"), [3, 4, 5]);
    let (status, _, body) = server.get("/api/v1/recording?seconds=86401");
    assert!(status == 400 && body.contains("from 1 to 86400"), "{body}");
}

/// Times of the frames in a recording, seconds since [`BEGAN`].
pub(crate) fn seconds(server: &Server, query: &str) -> Vec<i64> {
    let (head, body) = server.get_bytes(&format!("/api/v1/recording?{query}"), "Accept: */*");
    assert!(head.contains("content-type: application/octet-stream"), "{head}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording");
    std::fs::write(&path, body).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.origin(0).unwrap().node, "n1");
    recording.times().iter().map(|at_ms| at_ms.cast_signed() / 1000 - BEGAN).collect()
}

/// Time of the first reading, seconds since the epoch.
const BEGAN: i64 = 1_700_000_000;

/// A recording of the two hours that end with the tenth second of the server: `old` has waited for
/// `hog` all the time, and used a core for the first hour only.
pub(crate) fn recorded(dir: &Path) {
    let mut ring =
        Ring::open(RingConfig::new(dir.to_owned(), 16 << 20).thinned(), Origin::default());
    let ring = ring.as_mut().unwrap();
    let name = |pod: &str| PodName { namespace: "shop".to_owned(), pod: pod.to_owned() };
    for second in -7190..=10_i64 {
        let rates = Rates {
            usage_cores: Some(f64::from(u8::from(second < -3600))),
            throttled_own: Some(0.25),
            neighbor: Some(0.5),
            ..Rates::default()
        };
        let row = ContainerFrame {
            namespace: "shop".to_owned(),
            pod: "old".to_owned(),
            container: "app".to_owned(),
            uid: "uid-old".to_owned(),
            rates,
            ..ContainerFrame::default()
        };
        let pair = Interference { victim: name("old"), aggressor: name("hog"), wait: 0.5 };
        let mut node = NodeFrame { name: "n1".to_owned(), ..NodeFrame::default() };
        node.trace.mode = "continuous".to_owned();
        ring.append(&Frame {
            node,
            at_ms: (1000 * (BEGAN + second)).cast_unsigned(),
            seconds: 1.0,
            containers: vec![row],
            interference: vec![pair],
            ..Frame::default()
        })
        .unwrap();
    }
}

pub(crate) fn ago(seconds: i64) -> String {
    format!("until={}", 1000 * (BEGAN - seconds))
}

#[test]
fn every_answer_reaches_back_into_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let server = Server::start_recorded(3, dir.path()).ten_seconds();
    let document = server.json("/api/v1/openapi.json");
    let get = |path: &str, call: String| {
        let answer = server.json(&call);
        assert_valid(&document, path, "200", &answer);
        answer
    };
    let begin_ms = server.json("/api/v1/node")["history"]["beginMs"].as_i64().unwrap();
    assert!((-7190..=-7170).contains(&(begin_ms / 1000 - BEGAN)), "{begin_ms}");
    // A second of the last hour, and one of which there is only a mean.
    for (time, used) in [(1000, 0.0), (5005, 1.0)] {
        let frame = get("/api/v1/frame", format!("/api/v1/frame?{}", ago(time)));
        assert_eq!(frame["containers"][0]["pod"], "old");
        let known = frame["containers"][0]["usageCores"].as_f64().unwrap();
        assert!((known - used).abs() < 0.001, "{frame}");
        let pods = get("/api/v1/pods", format!("/api/v1/pods?{}", ago(time)));
        assert_eq!(pods["pods"][0]["worstAggressor"]["aggressor"]["pod"], "hog");
    }
    // The mean of the hour that begins half an hour before the change.
    let frame = get("/api/v1/frame", format!("/api/v1/frame?seconds=3600&{}", ago(1800)));
    let used = frame["containers"][0]["usageCores"].as_f64().unwrap();
    assert!((used - 0.5).abs() < 0.02, "{frame}");
    let path = "/api/v1/interference";
    let waits = get(path, format!("{path}?seconds=3600&{}", ago(1800)));
    assert!((waits[0]["seconds"].as_f64().unwrap() - 1800.0).abs() < 10.0, "{waits}");
    let path = "/api/v1/pods/{uid}";
    let pod = get(path, format!("/api/v1/pods/uid-old?seconds=6000&points=60&{}", ago(600)));
    let points = pod["points"]["atMs"].as_array().unwrap().len();
    assert!((59..=61).contains(&points), "{points} points");
    assert_eq!(pod["aggressors"][0]["aggressor"]["pod"], "hog");
    let path = "/api/v1/history";
    let history = get(path, format!("{path}?seconds=600&points=60&measure=neighbor&{}", ago(3600)));
    let values = history["containers"][0]["measures"]["neighbor"].as_array().unwrap();
    assert!(values.len() >= 59, "{history}");
    let path = "/api/v1/overview";
    let overview = get(path, format!("{path}?seconds=7200&points=100"));
    let lost: Vec<f64> = from(overview["lost"].clone());
    assert!((90..=102).contains(&lost.len()), "{} points", lost.len());
    // The last seconds come from the memory, in which other containers run.
    let recorded = &lost[..lost.len() - 1];
    assert!(recorded.iter().all(|lost| (lost - 0.75).abs() < 0.01), "{lost:?}");
    let file = seconds(&server, &format!("seconds=60&{}", ago(1000)));
    assert_eq!(file, (-1059..=-1000).collect::<Vec<_>>());
    let file = seconds(&server, "seconds=7200");
    assert!((1200..=1800).contains(&file.len()), "{} frames", file.len());
}

#[test]
fn a_time_outside_of_the_recording_is_rejected_with_the_range() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let server = Server::start_recorded(3, dir.path()).ten_seconds();
    for path in
        ["frame", "pods", "pods/uid-old", "interference", "history", "overview", "recording"]
    {
        let (status, _, body) = server.get(&format!("/api/v1/{path}?{}", ago(90_000)));
        let range = "no data of this time: the history has 2023-11-14T20:1";
        assert!(status == 404 && body.contains(range), "{path}: {status} {body}");
    }
    let without = Server::start(3, true).ten_seconds();
    let (status, _, body) = without.get(&format!("/api/v1/frame?{}", ago(1000)));
    assert!(status == 404 && body.contains("to 2023-11-14T22:13:30Z"), "{status} {body}");
}

#[test]
fn a_large_answer_is_compressed_for_clients_that_accept_it() {
    let server = Server::start(50, true).ten_seconds();
    let path = "/api/v1/history?seconds=10";
    let (plain_head, plain) = server.get_bytes(path, "Accept: */*");
    let (head, gzip) = server.get_bytes(path, "Accept-Encoding: br, gzip");
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"));
    assert!(!plain_head.contains("content-encoding"), "{plain_head}");
    assert!(gzip.len() * 10 < plain.len(), "{} of {} bytes", gzip.len(), plain.len());
    assert_eq!(metrics::exposition::decompress(&gzip).unwrap(), plain);
    // Not worth it.
    let (head, _) = server.get_bytes("/api/v1/pins", "Accept-Encoding: gzip");
    assert!(!head.contains("content-encoding"), "{head}");
}

#[test]
fn a_schema_rejects_an_answer_with_an_undocumented_field() {
    let document = serde_json::from_str(OPENAPI).unwrap();
    let schema = schema(&document, "/api/v1/interference", "200");
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let name = json!({"namespace": "a", "pod": "b"});
    let good = json!([{"victim": name, "aggressor": name, "seconds": 1.5}]);
    assert!(validator.is_valid(&good));
    for (field, value) in [("more", json!(1)), ("seconds", json!("1"))] {
        let mut bad = good.clone();
        bad[0][field] = value;
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}

/// A report in which every field has a value.
pub(crate) fn full_report() -> ContainerReport {
    let limit = LimitAdvice {
        cores: 0.5,
        throttled_share: 0.005,
        throttled_share_at_most: 0.02,
        is_lower_bound: true,
    };
    ContainerReport {
        namespace: "shop".to_owned(),
        pod: "pod-1".to_owned(),
        container: "app".to_owned(),
        workload: Some(Workload { kind: "Deployment".to_owned(), name: "pod".to_owned() }),
        limit_cores: Some(0.2),
        request_cores: Some(0.1),
        runtime: Some(Runtime {
            language: Language::Go,
            version: Some("go1.24.4".to_owned()),
            module: Some("example.com/app".to_owned()),
            automaxprocs: true,
            automemlimit: true,
            claims_cpus: false,
            go_follows_limit: false,
            parallelism: Some(2),
            parallelism_source: Some("GOMAXPROCS".to_owned()),
            settings: [("GOMAXPROCS".to_owned(), "2".to_owned())].into(),
        }),
        cpu: CpuAdvice {
            windows: 600,
            watched_seconds: 600,
            limit: Some(limit),
            burst_seconds: Some(0.1),
            request_cores: Some(0.3),
            most_cores: Some(0.6),
        },
        not_enough_history: Some("request: in 10 minutes".to_owned()),
        memory: Some(MemoryAdvice {
            headroom_bytes: 1 << 20,
            soft_limit_bytes: Some(1 << 28),
            gogc: Gogc::Raise,
        }),
        injected: vec![Injected {
            name: "GOMAXPROCS".to_owned(),
            value: "2".to_owned(),
            status: InjectionStatus::Stale,
            current: Some("1".to_owned()),
        }],
        qos_change: Some("BestEffort to Burstable".to_owned()),
        findings: vec![Finding {
            kind: FindingKind::ThrottledByOwnQuota,
            severity: Severity::Warning,
            summary: None,
            evidence: [("throttled_share".to_owned(), 0.8)].into(),
            windows: 600,
            patch: Some(json!({"spec": {}})),
            no_patch: Some("none".to_owned()),
            figures: vec!["throttled 80 % of the periods".to_owned()],
            docs: "advice.md".to_owned(),
        }],
    }
}

#[test]
fn advice_with_every_field_matches_its_schema() {
    let document = serde_json::from_str(OPENAPI).unwrap();
    let report = AdviceReport { objective: 0.01, containers: vec![full_report()] };
    assert_valid(&document, "/api/v1/advice", "200", &serde_json::to_value(report).unwrap());
}

#[test]
fn garbage_collection_of_a_pod_is_complete_and_matches_its_schema() {
    let server = Server::start(2, true).ten_seconds();
    let document = server.json("/api/v1/openapi.json");
    let pod = server.json("/api/v1/pods/uid-1");
    assert_valid(&document, "/api/v1/pods/{uid}", "200", &pod);
    let row = &pod["containers"][0];
    assert!(row["usageCores"].is_number(), "{row}");
    let expected = json!({
        "cpuShare": 0.37, "cycles": 2.5, "stoppedShare": 0.02, "gogc": 100, "gomaxprocs": 2,
        "collectors": ["G1 young collection pauses"],
        "liveBytes": 64 << 20, "goalBytes": 128 << 20, "limitBytes": 256 << 20,
    });
    assert_eq!(row["gc"], expected);
    assert_eq!(server.json("/api/v1/pods/uid-0")["containers"][0].get("gc"), None);
}

#[test]
fn pods_are_listed_worst_first_and_in_detail() {
    let server = Server::start(3, true).ten_seconds();
    let pods = server.json("/api/v1/pods");
    let uids: Vec<&str> =
        pods["pods"].as_array().unwrap().iter().map(|pod| pod["uid"].as_str().unwrap()).collect();
    assert_eq!(uids, ["uid-0", "uid-1", "uid-2"]);
    assert_eq!(pods["pods"][0]["pod"], HOSTILE);
    assert_eq!(pods["pods"][0]["worstAggressor"]["aggressor"]["pod"], "pod-1");
    let pod = server.json("/api/v1/pods/uid-1");
    assert_eq!(pod["points"]["atMs"].as_array().unwrap().len(), 10);
    assert_eq!(
        (&pod["aggressors"][0]["aggressor"]["pod"], pod["victims"].as_array().unwrap().len()),
        (&json!(HOSTILE), 1)
    );
    let seconds = pod["victims"][0]["seconds"].as_f64().unwrap();
    assert!((seconds - 0.9).abs() < 0.01, "90 ms in each of ten seconds, not {seconds}");
    assert_eq!((&pod["pins"][0]["cpus"], pod["pins"].as_array().unwrap().len()), (&json!("1"), 1));
    let history = server.json("/api/v1/history?seconds=3&uid=uid-2&measure=usageCores");
    let usage = history["containers"][0]["measures"]["usageCores"].as_array().unwrap();
    assert!(usage.len() == 3 && (usage[2].as_f64().unwrap() - 0.5).abs() < 0.001, "{history}");
    assert_eq!(history["pairs"], json!([]));
    let node = server.json("/api/v1/node");
    assert_eq!((&node["node"]["name"], &node["version"]), (&json!("n1"), &json!("1.2.3")));
    assert_eq!(node["recording"], false);
}

#[test]
fn the_aggressors_of_a_pod_are_known_second_by_second() {
    let server = Server::start(3, true).ten_seconds();
    let history = server.json("/api/v1/history?seconds=4&uid=uid-1&aggressors=5&measure=smt");
    let [pair] = &history["pairs"].as_array().unwrap()[..] else { panic!("{history}") };
    assert_eq!(
        (&pair["victim"]["pod"], &pair["aggressor"]["pod"]),
        (&json!("pod-1"), &json!(HOSTILE))
    );
    let waits = pair["wait"].as_array().unwrap().iter();
    assert!(waits.clone().all(|wait| (wait.as_f64().unwrap() - 0.01).abs() < 0.001), "{pair}");
    assert_eq!(waits.len(), 4);
    let pod = server.json("/api/v1/pods/uid-1?seconds=3");
    assert_eq!(pod["seconds"], 3);
    assert_eq!(pod["points"]["pairs"][0]["wait"].as_array().unwrap().len(), 3);
    assert_eq!(pod["points"]["atMs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_wrong_parameter_is_a_bad_request_that_says_what_is_allowed() {
    let server = Server::start(100, true).ten_seconds();
    let document = serde_json::from_str(OPENAPI).unwrap();
    let error = |call: &str, path: &str, expected: u16| {
        let (status, _, body) = server.get(call);
        assert_eq!(status, expected, "{call}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_valid(&document, path, &expected.to_string(), &answer);
        answer["error"].as_str().unwrap().to_owned()
    };
    let history = "/api/v1/history";
    assert!(error("/api/v1/history?seconds=0", history, 400).contains("from 1 to 86400"));
    assert!(error("/api/v1/history?measure=all", history, 400).contains("throttledOwn"));
    assert!(error("/api/v1/history?seconds=600", history, 400).contains("at most 500000"));
    assert!(error("/api/v1/history?aggressors=13", history, 400).contains("from 0 to 12"));
    assert!(error("/api/v1/pods/uid-1?seconds=0", "/api/v1/pods/{uid}", 400).contains("seconds"));
    assert!(error("/api/v1/interference?uid=a", "/api/v1/interference", 400).contains("seconds"));
    assert!(error("/api/v1/pods/uid-200", "/api/v1/pods/{uid}", 404).contains("/api/v1/pods"));
}

#[test]
fn before_the_first_second_has_ended_there_is_no_data_and_no_zeros() {
    let server = Server::start(1, true);
    for path in ["/api/v1/node", "/api/v1/pods", "/api/v1/frame", "/api/v1/history"] {
        let (status, _, body) = server.get(path);
        assert!(status == 503 && body.contains("no data yet"), "{path}: {status} {body}");
    }
    assert_eq!(server.json("/api/v1/interference"), json!([]));
}

#[test]
fn with_ui_off_there_is_neither_page_nor_api_but_the_advice() {
    let server = Server::start(1, false);
    let browser = |path| server.get_with(path, "Accept: text/html");
    let (status, head, body) = browser("/");
    assert!(status == 200 && head.contains("text/plain") && !body.contains("openapi"), "{body}");
    for path in ["/api/v1/node", "/api/v1/stream", "/api/v1/openapi.json", "/ui/page.js"] {
        assert_eq!(browser(path).0, 404, "{path}");
    }
    assert_eq!(server.get("/api/v1/advice").0, 200);
    assert_eq!(server.get("/metrics").0, 200);
}

#[test]
fn the_page_is_served_to_browsers_with_a_policy_that_allows_nothing_inline_or_foreign() {
    let server = Server::start(1, true);
    assert!(server.get("/").1.contains("text/plain"), "scripts and curl get text");
    let (status, head, body) = server.get_with("/", "Accept: text/html,*/*;q=0.8");
    assert!(status == 200 && head.contains("content-type: text/html"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self';"));
    assert!(!head.contains("unsafe-inline") && head.contains("x-content-type-options: nosniff"));
    for inline in ["<style", " style=", "onclick", "javascript:", "http://", "https://"] {
        assert!(!body.contains(inline), "{inline} in the page");
    }
    let files: Vec<&str> = body.split('"').filter_map(|text| text.strip_prefix("ui/")).collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let (status, head, body) = server.get(&format!("/ui/{file}"));
        assert!(status == 200 && head.contains("content-security-policy"), "{file}: {head}");
        for dangerous in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!body.contains(dangerous), "{file} uses {dangerous}");
        }
    }
    assert_eq!(server.get("/ui/none.js").0, 404);
}

#[test]
fn files_of_the_page_are_compressed_for_clients_that_accept_it() {
    let server = Server::start(1, true);
    let (_, index) = server.get_bytes("/", "Accept: text/html");
    let (head, compressed) = server.get_bytes("/", "Accept: text/html\r\nAccept-Encoding: gzip");
    assert!(head.contains("vary: accept, accept-encoding"), "{head}");
    assert_eq!(content(&head, compressed), index);
    for file in ["ui/page.css", "ui/page.js", "ui/icon.svg", "api/v1/openapi.json"] {
        let path = format!("/{file}");
        let (head, plain) = server.get_bytes(&path, "Accept-Encoding: gzip;q=0");
        assert!(!head.contains("content-encoding"), "{head}");
        let (head, sent) = server.get_bytes(&path, "Accept-Encoding: gzip");
        assert!(head.contains("vary: accept-encoding"), "{head}");
        assert!(sent.len() * 2 < plain.len() || file == "ui/icon.svg", "{file}: {}", sent.len());
        assert_eq!(content(&head, sent), plain, "{file}");
    }
}

/// The body of an answer, which may be compressed.
fn content(head: &str, body: Vec<u8>) -> Vec<u8> {
    match head.contains("content-encoding: gzip") {
        true => metrics::exposition::decompress(&body).unwrap(),
        false => body,
    }
}

/// An event stream, after its header.
fn stream(server: &Server) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    (head, reader)
}

/// The time of the next frame.
fn next_frame(reader: &mut BufReader<TcpStream>) -> u64 {
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            let frame: Value = serde_json::from_str(data).unwrap();
            let document = serde_json::from_str(OPENAPI).unwrap();
            assert_valid(&document, "/api/v1/frame", "200", &frame);
            return frame["atMs"].as_u64().unwrap();
        }
    }
}

#[test]
fn a_stream_begins_with_the_latest_frame_and_has_each_new_one() {
    let server = Server::start(2, true).ten_seconds();
    let (head, mut events) = stream(&server);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    assert_eq!(next_frame(&mut events), 1_700_000_010_000);
    for second in 11..14 {
        server.second(second);
        assert_eq!(next_frame(&mut events), 1_700_000_000_000 + 1000 * second);
    }
    assert!(server.stops_within(Duration::from_secs(10)), "an open stream delays the end");
}

#[test]
fn nothing_waits_for_the_doctor_and_it_examines_once_at_a_time() {
    let (began, begins) = mpsc::channel();
    let (finish, finished) = mpsc::channel();
    // As a kubelet that is silent: ends only when the test lets it.
    let finished = Mutex::new(finished);
    let doctor = move || {
        began.send(()).unwrap();
        finished.lock().unwrap().recv_timeout(Duration::from_secs(60))?;
        Ok(from(json!({"worst": "good", "findings": []})))
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_with(address, 2, true, Box::new(doctor), None).ten_seconds();
    let (_, mut events) = stream(&server);
    assert_eq!(next_frame(&mut events), 1_700_000_010_000);
    std::thread::scope(|scope| {
        let examine = || scope.spawn(|| server.json("/api/v1/doctor"));
        let examining = [examine(), examine()];
        begins.recv_timeout(Duration::from_secs(60)).expect("the doctor is not asked");
        // A new snapshot, so that its page is not rendered yet.
        server.second(11);
        assert_eq!(server.get("/metrics").0, 200);
        assert_eq!(next_frame(&mut events), 1_700_000_011_000);
        assert_eq!(server.json("/api/v1/frame")["atMs"], 1_700_000_011_000_u64);
        assert!(examining.iter().all(|examining| !examining.is_finished()));
        finish.send(()).unwrap();
        for examining in examining {
            assert_eq!(examining.join().unwrap()["worst"], "good");
        }
        assert!(begins.try_recv().is_err(), "the second request did not wait for the first");
    });
}

#[test]
fn streams_that_nobody_reads_take_no_place_of_the_scrapers() {
    let server = Server::start(200, true).ten_seconds();
    let stuck: Vec<_> = (0..9).map(|_| stream(&server)).collect();
    let rejected: Vec<&str> = stuck.iter().map(|(head, _)| head.lines().next().unwrap()).collect();
    assert!(rejected[..8].iter().all(|line| line.contains("200")), "{rejected:?}");
    assert!(rejected[8].contains("503"), "{rejected:?}");
    for second in 11..60 {
        server.second(second);
        assert_eq!(server.get("/metrics").0, 200);
    }
    assert_eq!(server.json("/api/v1/node")["agent"]["eventStreams"], 8);
    drop(stuck);
    let mut fresh = stream(&server);
    assert_eq!(next_frame(&mut fresh.1), 1_700_000_059_000, "their places are free again");
}
