//! The endpoint's security and its page of cAdvisor's names: real TLS, an API server that reviews tokens.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use kubelet_stub::apiserver::ApiServerStub;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;

use crate::support::{Agent, binary, eventually};

const NAME: &str = "cpuwarden.test";

#[test]
fn it_serves_https_alone_where_it_has_a_certificate() {
    let node = Node::new();
    let agent = node.agent(&[]);
    assert_eq!(node.get(&agent, "/healthz", None).unwrap().0, 200);
    let (status, page) = node.get(&agent, "/metrics", None).unwrap();
    assert!(status == 200 && page.contains("cpuwarden_build_info"), "{status}: {page}");
    // Without TLS there is no answer of HTTP.
    let mut stream = TcpStream::connect(agent.address()).unwrap();
    write!(stream, "GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_certificate_that_changes_is_used_and_one_that_is_broken_is_not() {
    let node = Node::new();
    let agent = node.agent(&[]);
    fs::write(node.file("tls.crt"), "no certificate").unwrap();
    assert_eq!(node.get(&agent, "/healthz", None).unwrap().0, 200, "the last good one stays in force");
    eventually("the log tells of the broken certificate", || agent.log().contains("cannot be used"));
    let before = fs::read(node.file("ca.crt")).unwrap();
    make_certificate(node.directory.path());
    eventually("the new certificate is presented", || node.get(&agent, "/healthz", None).is_ok());
    fs::write(node.file("ca.crt"), before).unwrap();
    node.get(&agent, "/healthz", None).expect_err("the old certificate is still presented");
}

#[test]
fn who_may_read_the_metrics_is_asked_once_and_counted() {
    let node = Node::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(ApiServerStub::start(node.directory.path())).unwrap();
    server.admit("prometheus-token", "system:serviceaccount:monitoring:prometheus", &["/metrics"]);
    server.admit("stranger-token", "stranger", &[]);
    let agent = node.agent(&[
        "--metrics-auth".to_owned(),
        "--cadvisor-metrics".to_owned(),
        format!("--apiserver-url={}", server.url()),
        format!("--apiserver-ca-file={}", server.ca_file().display()),
        format!("--apiserver-token-file={}", server.token_file().display()),
    ]);
    let status = |path: &str, token: Option<&str>| node.get(&agent, path, token).unwrap().0;
    assert_eq!((status("/healthz", None), server.requests().len()), (200, 0), "probes are not asked for");
    assert_eq!((status("/metrics", None), server.requests().len()), (401, 0));
    assert_eq!((status("/metrics", Some("nobody")), server.requests().len()), (401, 1));
    assert_eq!((status("/metrics", Some("stranger-token")), server.requests().len()), (403, 3));
    assert_eq!((status("/metrics", Some("prometheus-token")), server.requests().len()), (200, 5));
    // Another path is another question; the answers so far are remembered.
    assert_eq!((status("/metrics/cadvisor", Some("prometheus-token")), server.requests().len()), (403, 7));
    let (_, page) = node.get(&agent, "/metrics", Some("prometheus-token")).unwrap();
    assert_eq!((status("/metrics", Some("nobody")), status("/metrics", Some("stranger-token"))), (401, 403));
    assert_eq!(server.requests().len(), 7);
    assert!(page.contains("\ncpuwarden_apiserver_requests_total 7\n"), "{page}");
    runtime.block_on(server.stop_listening());
    assert_eq!(status("/metrics", Some("a-new-token")), 503, "nobody new gets in while the API server is away");
    assert_eq!(status("/metrics", Some("prometheus-token")), 200);
}

#[test]
fn what_cannot_be_secure_is_refused_at_the_start() {
    let node = Node::new();
    let (certificate, key) = (node.file("tls.crt"), node.file("tls.key"));
    fs::write(node.file("none"), "").unwrap();
    let flag = |name: &str, path: &str| format!("--{name}={path}");
    let cases = [
        (vec![flag("tls-cert", &certificate)], "--tls-key"),
        (vec![flag("tls-key", &key)], "--tls-cert"),
        (vec!["--metrics-auth".to_owned()], "clear text"),
        (vec![flag("tls-cert", &node.file("none")), flag("tls-key", &key)], "--tls-cert"),
        (vec![flag("tls-cert", &certificate), flag("tls-key", &node.file("none"))], "--tls-key"),
    ];
    for (flags, named) in cases {
        let output =
            Command::new(binary()).args(["run", "--listen=127.0.0.1:0", "--pod-source=none"]).args(&flags).output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or_default();
        assert!(output.status.code() == Some(64) && last.contains(named), "{flags:?}: {error}");
    }
}

#[test]
fn cadvisors_names_are_served_only_where_they_are_asked_for() {
    let agent = Agent::start(&["--pod-source=none"]);
    assert_eq!(agent.get("/metrics/cadvisor").0, 404);
}

/// Where an agent's certificate lies.
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
        args.extend([format!("--tls-cert={}", self.file("tls.crt")), format!("--tls-key={}", self.file("tls.key"))]);
        args.extend_from_slice(more);
        Agent::start(&args)
    }

    /// Status and body of a GET over TLS, trusting what `ca.crt` says.
    fn get(&self, agent: &Agent, path: &str, token: Option<&str>) -> std::io::Result<(u16, String)> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file("ca.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let connection = ClientConnection::new(config, ServerName::try_from(NAME).unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(agent.address())?);
        let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.0\r\n{authorization}\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
        Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
    }
}

/// A certificate that is its own CA.
fn make_certificate(directory: &Path) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(directory.join("ca.crt"), certificate.pem()).unwrap();
}
