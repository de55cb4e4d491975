//! A real Prometheus scrapes both formats, compressed, and gets every series and value.

mod snapshots;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use metrics::exposition::accepts_gzip;
use metrics::{Exposition, Format, catalogue};
use serde_json::Value;
use snapshot::NodeSnapshot;

/// Timeout far beyond any start or scrape; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Prometheus 2.42 cannot be configured to request a format, so the text format has a separate
/// path.
const JOBS: [(&str, &str, Format); 2] =
    [("openmetrics", "/metrics", Format::OpenMetrics), ("text", "/text", Format::Text)];

/// A label value with every character that needs an escape.
const HARD_REASON: &str = "a \"quoted\" back\\slash,\nanother line, é";

#[test]
fn both_formats_arrive_whole_in_a_real_prometheus() {
    let (served, scrapes) = mpsc::channel();
    let address = serve(snapshot(), served);
    let prometheus = Prometheus::start(address);
    wait_for_scrapes(&scrapes);

    let mut exposition = Exposition::new(usize::MAX);
    let page = exposition.render(&snapshot(), &snapshots::agent(), Format::Text);
    let series = page
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .count();
    for (job, ..) in JOBS {
        let expected = [
            (format!("up{{job=\"{job}\"}}"), "1".to_owned()),
            (format!("scrape_samples_scraped{{job=\"{job}\"}}"), series.to_string()),
            (
                format!("count({{__name__=~\"(cpuwarden|process)_.+\",job=\"{job}\"}})"),
                series.to_string(),
            ),
            (
                format!(
                    "cpuwarden_container_cpu_usage_seconds_total{{job=\"{job}\",container=\"app\",mode=\"user\"}}"
                ),
                "81.234567891".to_owned(),
            ),
            (
                format!(
                    "cpuwarden_container_throttled_window_ratio_bucket{{job=\"{job}\",le=\"+Inf\"}}"
                ),
                "45".to_owned(),
            ),
            (
                format!("cpuwarden_container_throttled_window_ratio_sum{{job=\"{job}\"}}"),
                "3.7".to_owned(),
            ),
            (format!("cpuwarden_container_cpu_limit_cores{{job=\"{job}\"}}"), "0.25".to_owned()),
            (
                format!("cpuwarden_pod_source_up{{job=\"{job}\",source=\"kubelet\"}}"),
                "1".to_owned(),
            ),
            (format!("count(cpuwarden_container_info{{job=\"{job}\"}})"), "1".to_owned()),
        ];
        for (query, value) in expected {
            assert_eq!(prometheus.query(&query)["value"][1], *value, "{query}");
        }
        let feature = prometheus.query(&format!("cpuwarden_feature_enabled{{job=\"{job}\"}} == 0"));
        assert_eq!(feature["metric"]["reason"], HARD_REASON, "{job}");
    }
    for (_, descriptor) in catalogue::all() {
        prometheus.check_metadata(descriptor);
    }
}

fn snapshot() -> NodeSnapshot {
    let mut snapshot = snapshots::maximal();
    snapshot.node.features[1].reason = HARD_REASON.to_owned();
    snapshot
}

/// Prometheus appends a scrape before it starts the next, so the first page is stored when the
/// second request arrives.
fn wait_for_scrapes(scrapes: &Receiver<&'static str>) {
    let mut seen = JOBS.map(|(job, ..)| (job, 0));
    while seen.iter().any(|(_, count)| *count < 2) {
        let job = scrapes.recv_timeout(TIMEOUT).expect("Prometheus scrapes four times a second");
        seen.iter_mut().filter(|(of, _)| *of == job).for_each(|(_, count)| *count += 1);
    }
}

/// Serves the page on loopback while the test binary runs, and reports the job of each scrape.
fn serve(snapshot: NodeSnapshot, served: Sender<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        let agent = snapshots::agent();
        let mut exposition = Exposition::new(usize::MAX);
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept works on loopback");
            let request = Request::read(&stream);
            let (job, _, format) =
                *JOBS.iter().find(|(_, path, _)| *path == request.path).expect("a scraped path");
            let negotiated = Format::from_accept(&request.accept);
            assert_eq!(negotiated, Format::OpenMetrics, "{}", request.accept);
            assert!(accepts_gzip(&request.accept_encoding), "{}", request.accept_encoding);
            let body = exposition.render_compressed(&snapshot, &agent, format);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                format.content_type(),
                body.len(),
            );
            let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            // At the end Prometheus is killed and the test is over: errors are then expected.
            if sent.is_err() || served.send(job).is_err() {
                return;
            }
        }
    });
    address
}

struct Request {
    path: String,
    accept: String,
    accept_encoding: String,
}

impl Request {
    fn read(stream: &TcpStream) -> Self {
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a request is text"));
        let request = lines.next().expect("a request has a first line");
        let path = request.split(' ').nth(1).expect("a request line has a path").to_owned();
        let headers: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let header = |name: &str| {
            let values = headers.iter().filter_map(|line| line.split_once(": "));
            values
                .filter(|(of, _)| of.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
                .collect::<Vec<_>>()
                .join(",")
        };
        Self { path, accept: header("accept"), accept_encoding: header("accept-encoding") }
    }
}

/// A Prometheus with its data in a temporary directory; killed on drop.
struct Prometheus {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: SocketAddr) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let config = directory.path().join("prometheus.yml");
        let jobs: String = JOBS
            .iter()
            .map(|(job, path, _)| {
                format!("- job_name: {job}\n  metrics_path: {path}\n  static_configs: [{{targets: ['{target}']}}]\n")
            })
            .collect();
        let text = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\nscrape_configs:\n{jobs}"
        );
        std::fs::write(&config, text).expect("the configuration can be written");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn();
        let child = child.unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                panic!("prometheus is not installed: `apt-get install prometheus`")
            }
            _ => panic!("prometheus does not start: {error}"),
        });
        let mut prometheus = Self { child, address: String::new(), _directory: directory };
        prometheus.address = prometheus.listening();
        prometheus
    }

    /// The address from its log. The log is read to the end, so that Prometheus never blocks on a
    /// full pipe.
    fn listening(&mut self) -> String {
        let log = BufReader::new(self.child.stderr.take().expect("stderr is a pipe"));
        let (lines, printed) = mpsc::channel();
        thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                // The receiver is dropped once the address is known.
                let _ = lines.send(line);
            }
        });
        let mut log = String::new();
        loop {
            let line = printed
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("prometheus does not listen:\n{log}"));
            if line.contains("\"Listening on\"")
                && let Some((_, address)) = line.split_once("address=")
            {
                return address.split(' ').next().unwrap_or(address).to_owned();
            }
            log = log + &line + "\n";
        }
    }

    /// The single result of an instant query.
    fn query(&self, query: &str) -> Value {
        let mut data = self.get(&format!("/api/v1/query?query={}", percent_encoded(query)));
        let results = data["result"].as_array_mut().expect("an instant query gives a vector");
        assert_eq!(results.len(), 1, "{query}: {results:?}");
        results.remove(0)
    }

    /// Checks that type, HELP and, in OpenMetrics, the unit equal the catalogue's.
    fn check_metadata(&self, descriptor: &catalogue::Descriptor) {
        for (job, _, format) in JOBS {
            let openmetrics = format == Format::OpenMetrics;
            let metric = if openmetrics { descriptor.family() } else { descriptor.name };
            let target = percent_encoded(&format!("{{job=\"{job}\"}}"));
            let data = self
                .get(&format!("/api/v1/targets/metadata?match_target={target}&metric={metric}"));
            let metadata = &data[0];
            assert_eq!(metadata["type"], descriptor.kind.as_str(), "{job} {metric}: {data}");
            assert_eq!(metadata["help"], descriptor.help, "{job} {metric}");
            let unit = descriptor.unit().filter(|_| openmetrics).unwrap_or_default();
            assert_eq!(metadata["unit"], unit, "{job} {metric}");
        }
    }

    /// Field `data` of an answer of the HTTP API.
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("prometheus listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket takes a timeout");
        // HTTP/1.0: the body ends with the connection and is never chunked.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("prometheus takes a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("prometheus answers in UTF-8");
        let (_, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no body: {answer}"));
        let mut value: Value =
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert_eq!(value["status"], "success", "{path}: {value}");
        value["data"].take()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
