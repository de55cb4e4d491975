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
/// Remedy for a path that needs a right.
const TOKEN: &str = "set --token-file to the token of a user with permission to get this path";

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
            StatusCode::UNAUTHORIZED => Err(answer.failed(&format!("{status}: {TOKEN}"))),
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
            // The API server's decision; the agent's own has a reason.
            Err(_) if status == StatusCode::FORBIDDEN => TOKEN.to_owned(),
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
mod tests;
