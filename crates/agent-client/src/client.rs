//! HTTP client for a running agent: one request per connection, plain or over TLS, with a bearer
//! token.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use console::Failure;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tls_client::{SERVICE_ACCOUNT_TOKEN, TokenFile};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use watchdog::errors::chain;

use crate::address::{AgentAddress, Scheme};
use crate::args::AgentArgs;

/// Default of [`AgentClient::with_timeout`].
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of an answer that is kept in memory, bytes.
const LIMIT: usize = 64 << 20;

/// Least speed of an answer, bytes per second.
const SLOWEST: usize = 16 << 10;

/// Maximum size of the answer that gives the reason of a rejected request, bytes.
const MAX_REASON: usize = 64 << 10;

/// Requests to the endpoint of one agent.
pub struct AgentClient {
    address: AgentAddress,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Sent over TLS only.
    token: Option<TokenFile>,
    /// Maximum time for the connection, for the head of an answer, and for each part of its body.
    timeout: Duration,
    server: ServerKind,
}

/// The kind of server, for errors.
#[derive(Clone, Copy)]
struct ServerKind {
    noun: &'static str,
    /// Remedy if none answers.
    remedy: &'static str,
    /// Reason for an answer that no such server gives.
    otherwise: &'static str,
}

const AGENT: ServerKind = ServerKind {
    noun: "agent",
    remedy: "start one, or set --address",
    otherwise: "not an agent of this version, or one with --ui=off",
};

const PROMETHEUS: ServerKind = ServerKind {
    noun: "Prometheus",
    remedy: "check --prometheus",
    otherwise: "not the query API of Prometheus",
};

/// Body of a successful answer, read while it arrives.
pub struct AnswerBody {
    body: Incoming,
    url: String,
    timeout: Duration,
    server: ServerKind,
    _connection: SendRequest<Empty<Bytes>>,
}

/// Body of an answer without data.
#[derive(Deserialize)]
struct Rejection {
    error: String,
}

/// Runs a command's requests on the calling thread.
///
/// # Errors
/// The error of the requests, or the system cannot create an event queue.
pub fn block_on<T>(requests: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the client")?.block_on(requests)
}

impl AgentClient {
    /// Creates a client from the options of a command.
    ///
    /// # Errors
    /// A file cannot be used, the server name is invalid, or the scheme of the address contradicts
    /// the options of HTTPS.
    pub fn new(args: &AgentArgs) -> Result<Self, Failure> {
        let address = args.address.clone();
        let is_https = args.tls_cert.is_some() || args.connection.insecure_skip_verify;
        let remedy = match (address.scheme(), is_https) {
            (Some(Scheme::Http), true) => "http excludes --tls-cert and --insecure-skip-verify",
            (Some(Scheme::Https), false) => {
                "https needs --tls-cert, the agent's certificate or its CA's"
            }
            _ => "",
        };
        if !remedy.is_empty() {
            return Err(Failure::config(format!("--address: {remedy}")));
        }
        let name = match &args.connection.server_name {
            None => address.host().clone(),
            Some(name) => ServerName::try_from(name.clone()).map_err(|_| {
                Failure::config(format!("--server-name: {name:?} is not a DNS name or IP address"))
            })?,
        };
        let config = match (&args.tls_cert, args.connection.insecure_skip_verify) {
            (_, true) => tls_client::unverified_client_config("--insecure-skip-verify"),
            (Some(file), false) => tls_client::client_config("--tls-cert", file, name.clone()),
            (None, false) => {
                return Ok(Self {
                    address,
                    tls: None,
                    token: None,
                    timeout: TIMEOUT,
                    server: AGENT,
                });
            }
        };
        let config = config.map_err(|error| Failure::config(chain(&error)))?;
        Ok(Self {
            address,
            tls: Some((TlsConnector::from(Arc::new(config)), name)),
            token: token_file(args)?,
            timeout: TIMEOUT,
            server: AGENT,
        })
    }

    /// Changes the maximum time for each step of a request, 5 s by default.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Names the server Prometheus in errors.
    #[must_use]
    pub fn for_prometheus(self) -> Self {
        Self { server: PROMETHEUS, ..self }
    }

    /// Reads the JSON at a path.
    ///
    /// # Errors
    /// See [`AgentClient::open`]; or the answer is truncated, too large, or other JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let text = self.bytes(path).await?;
        serde_json::from_slice(&text).map_err(|error| {
            Failure::unavailable(format!("{}{path}: unexpected answer: {error}", self.address))
        })
    }

    /// Reads the bytes at a path.
    ///
    /// # Errors
    /// See [`AgentClient::open`]; or the answer is truncated or too large.
    pub async fn bytes(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let answer = self.open(path).await?;
        answer.whole(LIMIT).await
    }

    /// Requests a path. The body can be read while the agent still writes it.
    ///
    /// # Errors
    /// No agent answers, the certificate or the token is rejected, or the path does not exist.
    pub async fn open(&self, path: &str) -> Result<AnswerBody, Failure> {
        let connect = async {
            let address = self.address.host_and_port();
            let stream = self.within("connect", TcpStream::connect(address)).await?;
            stream.set_nodelay(true).map(|()| stream)
        };
        let stream = connect.await.map_err(|error| self.unreachable(&error))?;
        let (response, connection) = match &self.tls {
            None => self.exchange(stream, path).await?,
            Some((connector, name)) => {
                let stream =
                    self.within("TLS handshake", connector.connect(name.clone(), stream)).await;
                self.exchange(stream.map_err(|error| self.no_tls(&error))?, path).await?
            }
        };
        let url = format!("{}{path}", self.address);
        let status = response.status();
        let answer = AnswerBody {
            body: response.into_body(),
            url,
            timeout: self.timeout,
            server: self.server,
            _connection: connection,
        };
        match status {
            StatusCode::OK => Ok(answer),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(answer.failed(&format!(
                "{status}: set --token-file to the token of a user with permission to get this path"
            ))),
            StatusCode::MISDIRECTED_REQUEST => Err(answer.failed(&format!(
                "{status}: use localhost or an IP address, or add the name to the agent's --allowed-hosts"
            ))),
            status => Err(answer.rejected(status).await),
        }
    }

    /// Sends the request and reads the head of the answer.
    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
    ) -> Result<(Response<Incoming>, SendRequest<Empty<Bytes>>), Failure> {
        let mut request = Request::get(path).header(HOST, self.address.to_string());
        // `token_file` has read it once, so an error now returns the last token.
        if let Some(bearer) = self.token.as_ref().and_then(|token| token.read().ok()) {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Empty::new()).context("cannot create a request")?;
        let exchanged = async {
            let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
            // Errors of the connection are reported to the request or the body.
            tokio::spawn(connection);
            Ok((sender.send_request(request).await?, sender))
        };
        match timeout(self.timeout, exchanged).await {
            Ok(exchanged) => exchanged.map_err(|error: hyper::Error| match error.is_parse() {
                // A TLS server answers plain HTTP with an alert.
                true if self.tls.is_none() => Failure::unavailable(format!(
                    "the agent at {} serves HTTPS: set --tls-cert to its certificate or its CA's",
                    self.address
                )),
                _ => self.unreachable(&error),
            }),
            Err(_) => Err(self.unreachable(&timed_out("answer", self.timeout))),
        }
    }

    /// Applies the timeout to one step of a request.
    async fn within<T>(
        &self,
        step: &str,
        future: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        timeout(self.timeout, future).await.unwrap_or_else(|_| Err(timed_out(step, self.timeout)))
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> Failure {
        let (address, error) = (&self.address, chain(error));
        let ServerKind { noun, remedy, .. } = self.server;
        Failure::unavailable(format!("no {noun} answers at {address}: {error}; {remedy}"))
    }

    /// A failed handshake, with the remedy for its reason.
    fn no_tls(&self, error: &io::Error) -> Failure {
        let reason = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        let remedy = match reason {
            Some(rustls::Error::InvalidCertificate(_)) => {
                "set --tls-cert to the agent's certificate or its CA's, and --server-name to a name in the certificate"
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                "if the agent serves plain HTTP, leave out --tls-cert"
            }
            _ => "check --address",
        };
        Failure::unavailable(format!("no TLS connection to {}: {error}; {remedy}", self.address))
    }
}

impl AnswerBody {
    /// The next part of the body, as it arrived; `None` at its end.
    ///
    /// # Errors
    /// The connection breaks before the end, or no part arrives in time.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = timeout(self.timeout, self.body.frame()).await;
            let frame =
                frame.map_err(|_| self.failed(&timed_out("body", self.timeout).to_string()))?;
            let Some(frame) = frame.transpose().map_err(|error| self.failed(&chain(&error)))?
            else {
                return Ok(None);
            };
            // Trailers are of no interest.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// All of the body. Each [`SLOWEST`] bytes give it another second, so that a server which sends
    /// a byte from time to time does not keep a command for ever.
    ///
    /// # Errors
    /// As [`AnswerBody::next`]; or the body is larger than `most` bytes, or too slow.
    async fn whole(mut self, most: usize) -> Result<Vec<u8>, Failure> {
        let (began, mut bytes) = (Instant::now(), Vec::new());
        loop {
            let earned = Duration::from_secs((bytes.len() / SLOWEST) as u64);
            let left = (self.timeout + earned).saturating_sub(began.elapsed());
            let Ok(part) = timeout(left, self.next()).await else {
                return Err(self.failed(&format!(
                    "too slow: {} bytes in {} s",
                    bytes.len(),
                    began.elapsed().as_secs()
                )));
            };
            let Some(part) = part? else { return Ok(bytes) };
            bytes.extend_from_slice(&part);
            if bytes.len() > most {
                return Err(self.failed(&format!("larger than {} KiB", most >> 10)));
            }
        }
    }

    /// An answer without data: the reason that the agent gives, or else the most likely one.
    async fn rejected(self, status: StatusCode) -> Failure {
        let (url, otherwise) = (self.url.clone(), self.server.otherwise);
        let text = self.whole(MAX_REASON).await.unwrap_or_default();
        let reason = match serde_json::from_slice::<Rejection>(&text) {
            Ok(Rejection { error }) => error.chars().filter(|char| !char.is_control()).collect(),
            // Also with --ui=off an agent answers there.
            Err(_) if url.ends_with("/api/v1/advice") => "not an agent of this version".to_owned(),
            Err(_) => otherwise.to_owned(),
        };
        Failure::unavailable(format!("{url}: {status}: {reason}"))
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::unavailable(format!("{}: {why}", self.url))
    }
}

fn timed_out(step: &str, timeout: Duration) -> io::Error {
    let text = format!("{step}: nothing for {} s", timeout.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The file with the bearer token: the named one, or else the service account's, which does not
/// exist outside of a pod. An unverified agent gets only a token that the user named.
fn token_file(args: &AgentArgs) -> Result<Option<TokenFile>, Failure> {
    let Some(path) = &args.connection.token_file else {
        let token = TokenFile::new(Path::new(SERVICE_ACCOUNT_TOKEN));
        let is_sent = !args.connection.insecure_skip_verify && token.read().is_ok();
        return Ok(is_sent.then_some(token));
    };
    let token = TokenFile::new(path);
    match token.read() {
        Ok(_) => Ok(Some(token)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Failure::config(format!(
            "--token-file: {} contains no bearer token",
            path.display()
        ))),
        Err(error) => {
            Err(Failure::config(format!("--token-file: cannot read {}: {error}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    use super::*;
    use crate::args::ConnectionArgs;

    /// Serves one connection: reads up to `until`, then calls `answer`.
    fn server(
        until: &'static [u8],
        answer: impl FnOnce(std::net::TcpStream) + Send + 'static,
    ) -> (AgentClient, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(until) {
                request.push(0);
                stream.read_exact(request.last_mut().map(std::slice::from_mut).unwrap()).unwrap();
            }
            answer(stream);
        });
        (AgentClient { address, tls: None, token: None, timeout: TIMEOUT, server: AGENT }, server)
    }

    /// Error message of `get` for a server that reads up to `until` and then sends this.
    fn error(until: &'static [u8], answer: &'static [u8]) -> String {
        let (client, server) = server(until, |mut stream| stream.write_all(answer).unwrap());
        let failure = block_on(client.get::<serde_json::Value>("/api/v1/advice")).unwrap_err();
        server.join().unwrap();
        failure.to_string()
    }

    #[test]
    fn an_agent_with_https_is_reported() {
        // TLS rejects after the five bytes of a record header; the unread rest resets the
        // connection.
        let text = error(b"GET /", b"\x15\x03\x03\x00\x02\x02\x32");
        assert!(text.contains("serves HTTPS: set --tls-cert"), "{text}");
        // The rest is not always text.
        let text = error(b"GET /", b"\x15\x03\x03\xff\xff");
        assert!(text.contains("serves HTTPS: set --tls-cert"), "{text}");
    }

    #[test]
    fn unexpected_and_truncated_answers_are_reported() {
        let text = error(b"\r\n\r\n", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        assert!(text.contains("404 Not Found: not an agent of this version"), "{text}");
        assert!(!text.contains("--ui"), "an agent has advice with --ui=off as well: {text}");
        let text = error(
            b"\r\n\r\n",
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 32\r\n\r\n{\"error\":\"no data\\u001b[1m yet\"}",
        );
        assert!(text.ends_with("503 Service Unavailable: no data[1m yet"), "{text}");
        let text = error(b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"unfini");
        assert!(text.contains("/api/v1/advice: ") && text.contains("end of file"), "{text}");
        let text = error(b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]");
        assert!(text.contains("unexpected answer"), "{text}");
    }

    #[test]
    fn a_server_that_sends_a_byte_from_time_to_time_ends_no_later_than_a_silent_one() {
        let (done, ended) = mpsc::channel::<()>();
        let (client, server) = server(b"\r\n\r\n", move |mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").unwrap();
            // Each byte comes long before the timeout of a part.
            while ended.recv_timeout(Duration::from_millis(20)).is_err() {
                if stream.write_all(b" ").is_err() {
                    return;
                }
            }
        });
        let client = client.with_timeout(Duration::from_millis(300));
        let failure = block_on(client.get::<serde_json::Value>("/")).unwrap_err();
        assert!(failure.to_string().contains("too slow"), "{failure}");
        let _ = done.send(());
        server.join().unwrap();
    }

    #[test]
    fn parts_of_a_body_are_read_as_they_arrive() {
        let (next, wanted) = mpsc::channel();
        let (client, server) = server(b"\r\n\r\n", move |mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            for part in ["3\r\none\r\n", "3\r\ntwo\r\n"] {
                stream.write_all(part.as_bytes()).unwrap();
                wanted.recv().unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        });
        let read = block_on(async {
            let mut answer = client.open("/").await?;
            let mut parts = Vec::new();
            while let Some(part) = answer.next().await? {
                parts.push(part);
                next.send(()).unwrap();
            }
            Ok(parts)
        });
        server.join().unwrap();
        assert_eq!(read.unwrap(), ["one", "two"]);
    }

    #[test]
    fn a_host_name_is_resolved_and_sent() {
        let listener = TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(0);
                stream.read_exact(request.last_mut().map(std::slice::from_mut).unwrap()).unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7").unwrap();
            String::from_utf8(request).unwrap().to_lowercase()
        });
        let args = AgentArgs {
            address: format!("http://localhost:{port}").parse().unwrap(),
            tls_cert: None,
            connection: ConnectionArgs::default(),
        };
        let client = AgentClient::new(&args).unwrap();
        assert_eq!(block_on(client.get::<u32>("/")).unwrap(), 7);
        let request = server.join().unwrap();
        assert!(request.contains(&format!("host: localhost:{port}")), "{request}");
    }

    #[test]
    fn a_scheme_and_the_options_of_https_must_agree() {
        let client = |address: &str, insecure_skip_verify| {
            let connection = ConnectionArgs { insecure_skip_verify, ..ConnectionArgs::default() };
            let address = address.parse().unwrap();
            AgentClient::new(&AgentArgs { address, tls_cert: None, connection })
        };
        let error = client("https://worker-1:9753", false).err().unwrap().to_string();
        assert!(error.contains("--address: https needs --tls-cert"), "{error}");
        let error = client("http://worker-1:9753", true).err().unwrap().to_string();
        assert!(error.contains("--address: http excludes"), "{error}");
        let (_, name) = client("https://worker-1:9753", true).unwrap().tls.unwrap();
        assert_eq!(name.to_str(), "worker-1");
        assert!(client("http://worker-1:9753", false).unwrap().tls.is_none());
    }

    #[test]
    fn an_unverified_agent_gets_no_token_unless_one_is_named() {
        let args = |insecure_skip_verify, token_file| AgentArgs {
            address: "127.0.0.1:1".parse().unwrap(),
            tls_cert: None,
            connection: ConnectionArgs { server_name: None, insecure_skip_verify, token_file },
        };
        assert!(AgentClient::new(&args(false, None)).unwrap().tls.is_none());
        let client = AgentClient::new(&args(true, None)).unwrap();
        assert!(client.tls.is_some() && client.token.is_none());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret\n").unwrap();
        let client = AgentClient::new(&args(true, Some(file.path().to_owned()))).unwrap();
        assert_eq!(client.token.unwrap().read().unwrap(), "Bearer secret");
    }
}
