//! The endpoint's security and its cAdvisor page: real TLS, and an API server that reviews tokens.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::Frame;
use kubelet_stub::apiserver::ApiServerStub;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tempfile::TempDir;
use timeline::recording::{self, Origin};

use crate::support::{Agent, Kubelet, binary, eventually, http, pod_list, poll, running_pod};

const NAME: &str = "cpuwarden.test";
/// Tokens in the form of a JWT; the agent asks the API server about no others.
const PROMETHEUS: &str = "eyJhbGciOiJSUzI1NiJ9.cHJvbWV0aGV1cw.c2lnbmF0dXJl";
const STRANGER: &str = "eyJhbGciOiJSUzI1NiJ9.c3RyYW5nZXI.c2lnbmF0dXJl";

#[test]
fn with_a_certificate_only_https_is_served() {
    let node = Node::new();
    let agent = node.agent(&[]);
    let line = format!("\"page\":\"https://{}/\"", agent.address());
    assert!(agent.log().contains(&line), "{}", agent.log());
    assert_eq!(node.get(&agent, "/healthz", None).unwrap().0, 200);
    let (status, page) = node.get(&agent, "/metrics", None).unwrap();
    assert!(status == 200 && page.contains("cpuwarden_build_info"), "{status}: {page}");
    // Without TLS there is no HTTP response.
    let mut stream = TcpStream::connect(agent.address()).unwrap();
    write!(stream, "GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn changed_certificates_are_used_unless_broken() {
    let node = Node::new();
    let agent = node.agent(&[]);
    fs::write(node.file("tls.crt"), "no certificate").unwrap();
    assert_eq!(
        node.get(&agent, "/healthz", None).unwrap().0,
        200,
        "the last good one stays in force"
    );
    eventually("the broken certificate to be logged", || {
        agent.log().contains("cannot use the endpoint's new certificate")
    });
    let before = fs::read(node.file("ca.crt")).unwrap();
    make_certificate(node.directory.path());
    eventually("the new certificate is presented", || node.get(&agent, "/healthz", None).is_ok());
    fs::write(node.file("ca.crt"), before).unwrap();
    node.get(&agent, "/healthz", None).expect_err("the old certificate is still presented");
}

#[test]
fn reviews_of_readers_are_cached_and_counted() {
    let node = Node::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(ApiServerStub::start(node.directory.path())).unwrap();
    server.admit(PROMETHEUS, "system:serviceaccount:monitoring:prometheus", &["/metrics"]);
    server.admit(STRANGER, "stranger", &[]);
    let agent = node.agent(&[
        "--metrics-auth".to_owned(),
        "--cadvisor-metrics".to_owned(),
        format!("--apiserver-url={}", server.url()),
        format!("--apiserver-ca-file={}", server.ca_file().display()),
        format!("--apiserver-token-file={}", server.token_file().display()),
    ]);
    let status = |path: &str, token: Option<&str>| node.get(&agent, path, token).unwrap().0;
    assert_eq!(
        (status("/healthz", None), server.requests().len()),
        (200, 0),
        "probes are not asked for"
    );
    assert_eq!((status("/metrics", None), server.requests().len()), (401, 0));
    assert_eq!((status("/metrics", Some("a.nobody.c")), server.requests().len()), (401, 1));
    assert_eq!((status("/metrics", Some(STRANGER)), server.requests().len()), (403, 3));
    assert_eq!((status("/metrics", Some(PROMETHEUS)), server.requests().len()), (200, 5));
    // Another path needs another review; earlier answers are cached.
    assert_eq!((status("/metrics/cadvisor", Some(PROMETHEUS)), server.requests().len()), (403, 7));
    assert_eq!(
        (status("/metrics", Some("a.nobody.c")), status("/metrics", Some(STRANGER))),
        (401, 403)
    );
    assert_eq!(server.requests().len(), 7);
    // A page is rendered once per sample.
    eventually("they are counted", || {
        let (_, page) = node.get(&agent, "/metrics", Some(PROMETHEUS)).unwrap();
        page.contains("\ncpuwarden_apiserver_requests_total 7\n")
    });
    // Unknown tokens neither exhaust the API server nor evict a known token.
    assert_eq!((status("/metrics", Some("no-jwt")), server.requests().len()), (401, 7));
    let answers: Vec<u16> =
        (0..60).map(|number| status("/metrics", Some(&format!("a.b{number}.c")))).collect();
    assert!(answers.contains(&401) && answers.ends_with(&[429]), "{answers:?}");
    assert!(server.requests().len() < 7 + 60 / 2, "{}", server.requests().len());
    assert_eq!(status("/metrics", Some(PROMETHEUS)), 200);
    runtime.block_on(server.stop_listening());
    assert_eq!(status("/metrics", Some(PROMETHEUS)), 200);
}

#[test]
fn every_path_but_the_probes_needs_a_token_and_advise_sends_one() {
    let node = Node::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(ApiServerStub::start(node.directory.path())).unwrap();
    server.admit(PROMETHEUS, "system:serviceaccount:team:owner", &["/api/v1/advice", "/"]);
    let agent = node.agent(&[
        "--metrics-auth".to_owned(),
        "--cadvisor-metrics".to_owned(),
        format!("--apiserver-url={}", server.url()),
        format!("--apiserver-ca-file={}", server.ca_file().display()),
        format!("--apiserver-token-file={}", server.token_file().display()),
    ]);
    let openapi = include_str!("../../crates/endpoint/assets/openapi.json");
    let openapi: Value = serde_json::from_str(openapi).unwrap();
    let documented = openapi["paths"].as_object().unwrap().keys().map(String::as_str);
    let others = ["/", "/ui/page.js", "/metrics", "/metrics/cadvisor"];
    let paths: Vec<String> =
        documented.chain(others).map(|path| path.replace("{uid}", "uid-1")).collect();
    for path in ["/api/v1/stream", "/api/v1/recording", "/api/v1/doctor", "/api/v1/pods/uid-1"] {
        assert!(paths.iter().any(|known| known == path), "{path} is not documented");
    }
    for path in paths {
        assert_eq!(node.get(&agent, &path, None).unwrap().0, 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_ne!(node.get(&agent, path, None).unwrap().0, 401, "{path}");
    }
    assert_eq!(node.get(&agent, "/", Some(PROMETHEUS)).unwrap().0, 200);
    let advise = |more: &[String]| {
        let mut command = Command::new(binary());
        command
            .args(["advise", "--output=json", &format!("--address={}", agent.address())])
            .args(more);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    fs::write(node.file("reader"), format!("{PROMETHEUS}\n")).unwrap();
    let (ca, token) = (
        format!("--tls-cert={}", node.file("ca.crt")),
        format!("--token-file={}", node.file("reader")),
    );
    let (code, text) = advise(&[ca.clone(), token.clone()]);
    assert!(code == Some(0) && text.contains("\"containers\""), "{code:?}: {text}");
    let (code, text) = advise(&[]);
    assert!(code == Some(69) && text.contains("--tls-cert"), "{code:?}: {text}");
    let (code, text) = advise(&[ca]);
    assert!(code == Some(69) && text.contains("--token-file"), "{code:?}: {text}");
    // Another certificate is not the agent's, so no token is sent.
    fs::create_dir(node.file("other")).unwrap();
    make_certificate(Path::new(&node.file("other")));
    let other = format!("--tls-cert={}", node.file("other/ca.crt"));
    let (code, text) = advise(&[other, token.clone()]);
    assert!(code == Some(69) && text.contains("certificate"), "{code:?}: {text}");
    let insecure = "--insecure-skip-verify".to_owned();
    let (code, text) = advise(&[insecure.clone(), token.clone()]);
    assert!(code == Some(0) && text.contains("\"containers\""), "{code:?}: {text}");
    let (code, text) = advise(&[insecure]);
    assert!(code == Some(69) && text.contains("--token-file"), "{code:?}: {text}");
    // A token never goes over plain HTTP.
    let (code, text) = advise(&[token]);
    assert!(code == Some(64) && text.contains("--tls-cert"), "{code:?}: {text}");
}

#[test]
fn new_readers_are_rejected_during_an_api_server_outage() {
    let node = Node::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(ApiServerStub::start(node.directory.path())).unwrap();
    let agent = node.agent(&[
        "--metrics-auth".to_owned(),
        format!("--apiserver-url={}", server.url()),
        format!("--apiserver-ca-file={}", server.ca_file().display()),
        format!("--apiserver-token-file={}", server.token_file().display()),
    ]);
    runtime.block_on(server.stop_listening());
    assert_eq!(node.get(&agent, "/metrics", Some(PROMETHEUS)).unwrap().0, 503);
}

#[test]
fn readyz_reveals_no_addresses_or_errors() {
    let agent = Agent::start(&[
        "--pod-source=kubelet",
        "--kubelet-url=https://127.0.0.1:1",
        "--sched-trace=off",
    ]);
    eventually("a sample and a failed attempt", || {
        agent.get("/readyz").1 != "no sample taken yet\n"
            && agent.log().contains("pod source is down")
    });
    assert_eq!(agent.get("/readyz"), (503, "pod list not available yet\n".to_owned()));
}

#[test]
#[ignore = "only in `cargo xtask test --all`: it waits for a minute"]
fn without_names_for_a_minute_the_agent_is_ready_and_degraded() {
    let agent = Agent::start(&[
        "--pod-source=kubelet",
        "--kubelet-url=https://127.0.0.1:1",
        "--sched-trace=off",
    ]);
    assert_eq!(agent.get("/readyz").0, 503);
    let began = Instant::now();
    let (every, limit) = (Duration::from_millis(500), Duration::from_secs(120));
    poll(every, limit, || "readiness".to_owned(), || agent.get("/readyz").0 == 200);
    // The lower bound is no promise of speed: names had their time.
    assert!(began.elapsed() > Duration::from_secs(45), "{:?}", began.elapsed());
    let (_, body) = agent.get("/readyz");
    assert!(body.contains("config.podSource=apiserver") && !body.contains("127.0.0.1"), "{body}");
    let is_off = || {
        let page = agent.get("/metrics").1;
        let line = page
            .lines()
            .find(|line| line.contains("feature=\"pod_names\""))
            .unwrap_or_default()
            .to_owned();
        line.contains("config.podSource=apiserver") && line.ends_with(" 0")
    };
    eventually("the feature is off, with the remedy", is_off);
    let warnings =
        || agent.log().lines().filter(|line| line.contains("pods have no names")).count();
    eventually("the log has it, once", || warnings() == 1);
}

#[test]
fn insecure_endpoint_options_are_rejected_at_startup() {
    let node = Node::new();
    let (certificate, key) = (node.file("tls.crt"), node.file("tls.key"));
    fs::write(node.file("none"), "").unwrap();
    let flag = |name: &str, path: &str| format!("--{name}={path}");
    let cases = [
        (vec![flag("tls-cert", &certificate)], "--tls-key"),
        (vec![flag("tls-key", &key)], "--tls-cert"),
        (vec!["--metrics-auth".to_owned()], "clear text"),
        (
            vec![flag("tls-cert", &node.file("none")), flag("tls-key", &key)],
            "no certificate in this file",
        ),
        (
            vec![flag("tls-cert", &certificate), flag("tls-key", &node.file("none"))],
            "no private key in this file",
        ),
    ];
    for (flags, named) in cases {
        let output = Command::new(binary())
            .args(["run", "--listen=127.0.0.1:0", "--pod-source=none"])
            .args(&flags)
            .output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or_default();
        assert!(output.status.code() == Some(64) && last.contains(named), "{flags:?}: {error}");
    }
}

/// Runs a request in the network namespace of an agent.
fn in_network_of(agent: &Agent, address: SocketAddr, path: &str) -> (u16, String) {
    let network = fs::File::open(format!("/proc/{}/ns/net", agent.pid())).unwrap();
    let request = || {
        // Only this thread enters it.
        rustix::thread::move_into_link_name_space(network.as_fd(), None).unwrap();
        http::get(address, path).unwrap()
    };
    std::thread::scope(|scope| scope.spawn(request).join().unwrap())
}

#[test]
fn the_findings_of_the_doctor_are_only_for_clients_on_the_node() {
    // A network of its own: loopback, and an address of other nodes' clients. [::] accepts IPv4 also
    // where the system's default says otherwise.
    let enter = r#"ip link set lo up && ip address add 192.0.2.1/32 dev lo &&
        echo 1 > /proc/sys/net/ipv6/bindv6only && exec "$@""#;
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", enter, "sh"]).arg(binary());
        let flags = ["--pod-source=none", "--sched-trace=off"];
        let agent = Agent::start_command(command, listen.parse().unwrap(), &flags);
        let get = |address: [u8; 4], path: &str| {
            let address = SocketAddr::from((address, agent.address().port()));
            in_network_of(&agent, address, path)
        };
        let (status, body) = get([192, 0, 2, 1], "/api/v1/doctor");
        assert!(status == 403 && body.contains("--metrics-auth"), "{listen}: {status} {body}");
        assert_eq!(get([192, 0, 2, 1], "/metrics").0, 200, "{listen}");
        let (status, body) = get([127, 0, 0, 1], "/api/v1/doctor");
        assert!(status == 200 && body.contains("findings"), "{listen}: {status} {body}");
    }
}

/// A recording of an hour ago, read over an address of other nodes' clients and over loopback.
#[test]
fn times_before_the_last_ten_minutes_are_only_for_clients_on_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let then = now - 3_600_000;
    let frame =
        |second: u64| Frame { at_ms: then + 1000 * second, seconds: 1.0, ..Frame::default() };
    let file = recording::encode([1, 2, 3].map(frame), &Origin::default()).unwrap();
    fs::write(dir.path().join("0000000001.cpuwarden"), file).unwrap();
    let mut command = Command::new("unshare");
    let enter = r#"ip link set lo up && ip address add 192.0.2.1/32 dev lo && exec "$@""#;
    command.args(["--net", "sh", "-c", enter, "sh"]).arg(binary());
    let record = format!("--record={},1MiB", dir.path().display());
    let flags = ["--pod-source=none", "--sched-trace=off", &record];
    let agent = Agent::start_command(command, "0.0.0.0:0".parse().unwrap(), &flags);
    let get = |address: [u8; 4], path: &str| {
        let address = SocketAddr::from((address, agent.address().port()));
        in_network_of(&agent, address, path)
    };
    let (other, local) = ([192, 0, 2, 1], [127, 0, 0, 1]);
    eventually("a second in memory", || get(other, "/api/v1/frame").0 == 200);
    let path = format!("/api/v1/frame?until={}", then + 2000);
    let (status, body) = get(other, &path);
    assert!(status == 403 && body.contains("--metrics-auth"), "{status} {body}");
    let (status, body) = get(local, &path);
    let frame: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &frame["atMs"]), (200, &(then + 2000).into()), "{body}");
    // A snapshot says why not, and what would help.
    let second = (then + 3999) / 1000 % 86_400;
    let until = format!("--until={:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    let snapshot = |address: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", agent.pid())).arg(binary());
        let address = format!("--address={address}:{}", agent.address().port());
        let output = dir.path().join("part");
        command.args(["snapshot", "--last=10s", &until, &address, "--output"]).arg(output);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_saved, errors) = snapshot("192.0.2.1");
    assert!(!is_saved && errors.contains("such as a forwarded port"), "{errors}");
    let (is_saved, errors) = snapshot("127.0.0.1");
    assert!(is_saved, "{errors}");
}

#[test]
fn a_running_agent_examines_its_node_during_scrapes() {
    let kubelet = Kubelet::start(pod_list(&[running_pod("u-1", "shop", "web", "c-1")]));
    let start = || {
        let mut flags = kubelet.flags();
        flags.extend(["--sched-trace=off".to_owned(), "--sample-interval=100ms".to_owned()]);
        Agent::start(&flags)
    };
    let (status, body) = start().get("/api/v1/doctor");
    let report: Value = serde_json::from_str(&body).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let of_kubelet = findings.iter().find(|finding| finding["check"] == "kubelet").unwrap();
    assert_eq!((status, &of_kubelet["level"]), (200, &"good".into()), "{body}");
    assert!(of_kubelet["found"].as_str().unwrap().contains("answers: 1 pods"), "{body}");

    // A silent kubelet: the examination ends with the timeout of its request.
    kubelet.be_silent();
    let agent = start();
    std::thread::scope(|scope| {
        let examining = scope.spawn(|| agent.get("/api/v1/doctor"));
        let mut pages = BTreeSet::new();
        while !examining.is_finished() {
            let (_, page) = agent.get("/metrics");
            if !examining.is_finished() {
                pages.insert(page);
            }
        }
        let (status, body) = examining.join().unwrap();
        assert!(status == 200 && body.contains("kubelet"), "{status}: {body}");
        // One may have been rendered before the examination began, and one when it had ended.
        assert!(pages.len() > 2, "{} pages were rendered meanwhile", pages.len());
    });
}

#[test]
fn every_documented_path_is_served() {
    let agent = Agent::start(&["--pod-source=none", "--sched-trace=off", "--cadvisor-metrics"]);
    let page = include_str!("../../deploy/docs/configuration.md");
    let paths: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `/")?.split('`').next()).collect();
    let served: Vec<&&str> =
        paths.iter().filter(|path| !path.contains("proc") && !path.contains("sys")).collect();
    assert!(served.len() == 7, "{served:?}");
    for path in served {
        assert_ne!(agent.get(&format!("/{path}")).0, 404, "{path}");
    }
}

/// Status and body of a browser's request with these header lines.
fn browse(agent: &Agent, path: &str, lines: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(agent.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[test]
fn a_site_that_names_itself_as_this_machine_reads_nothing() {
    let agent = Agent::start(&[
        "--pod-source=none",
        "--sched-trace=off",
        "--cadvisor-metrics",
        "--allowed-hosts=cpu.example.com",
    ]);
    let openapi = include_str!("../../crates/endpoint/assets/openapi.json");
    let openapi: Value = serde_json::from_str(openapi).unwrap();
    let documented = openapi["paths"].as_object().unwrap().keys();
    let paths: Vec<String> = documented
        .map(|path| path.replace("{uid}", "uid-1"))
        .filter(|path| path.starts_with("/api/"))
        .chain(["/", "/ui/page.js", "/api/v1/stream"].map(str::to_owned))
        .collect();
    assert!(paths.len() > 10, "{paths:?}");
    let port = agent.address().port();
    for path in &paths {
        let (status, answer) = browse(&agent, path, &format!("Host: evil.example:{port}\r\n"));
        assert!(status == 421 && answer.contains("--allowed-hosts"), "{path}: {answer}");
        let fetch = format!(
            "Host: localhost:{port}\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"
        );
        assert_eq!(browse(&agent, path, &fetch).0, 403, "{path}");
    }
    for path in ["/metrics", "/metrics/cadvisor", "/healthz", "/readyz"] {
        let (status, _) = browse(&agent, path, "Host: node-7.example:9753\r\n");
        assert!(![403, 421].contains(&status), "{path}: {status}");
    }
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    for host in ["localhost", "127.0.0.1", "[::1]", "cpu.example.com"] {
        let (status, answer) = browse(&agent, "/", &format!("Host: {host}:{port}\r\n{link}"));
        assert_eq!(status, 200, "{host}: {answer}");
    }
}

#[test]
fn cadvisors_names_are_served_only_where_they_are_asked_for() {
    let agent = Agent::start(&["--pod-source=none"]);
    assert_eq!(agent.get("/metrics/cadvisor").0, 404);
}

/// Directory with an agent's certificate.
struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        make_certificate(directory.path());
        Self { directory }
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn agent(&self, more: &[String]) -> Agent {
        let mut args = vec!["--pod-source=none".to_owned()];
        args.extend([
            format!("--tls-cert={}", self.file("tls.crt")),
            format!("--tls-key={}", self.file("tls.key")),
        ]);
        args.extend_from_slice(more);
        Agent::start(&args)
    }

    /// Status and body of a GET over TLS, trusting `ca.crt`.
    fn get(
        &self,
        agent: &Agent,
        path: &str,
        token: Option<&str>,
    ) -> std::io::Result<(u16, String)> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file("ca.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let connection =
            ClientConnection::new(config, ServerName::try_from(NAME).unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(agent.address())?);
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.0\r\n{authorization}\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
        Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
    }
}

/// Creates a self-signed CA certificate.
fn make_certificate(directory: &Path) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(directory.join("ca.crt"), certificate.pem()).unwrap();
}
