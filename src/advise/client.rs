//! One GET from a running agent.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet::{SERVICE_ACCOUNT_TOKEN, chain};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;

use crate::cli::AdviseArgs;
use crate::exit::Failure;

/// First byte of a TLS alert record (RFC 8446, 5.1): a TLS server's response to plain HTTP.
const TLS_ALERT: &[u8] = &[0x15];

/// Timeout of the connection, and of each read and write.
const PATIENCE: Duration = Duration::from_secs(5);

/// Address of an agent, and the TLS settings and token for requests to it.
pub(super) struct Endpoint {
    address: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Goes over TLS only.
    token: Option<String>,
}

impl Endpoint {
    /// # Errors
    /// A file that cannot be used, or a name that is none.
    pub(super) fn of(args: &AdviseArgs) -> Result<Self, Failure> {
        let address = args.address;
        let Some(certificate) = &args.tls_cert else {
            return Ok(Self { address, tls: None, token: None });
        };
        let name = match &args.server_name {
            None => ServerName::from(address.ip()),
            Some(name) => ServerName::try_from(name.clone()).map_err(|_| {
                Failure::config(format!("--server-name: {name:?} is not a DNS name or IP address"))
            })?,
        };
        let config = kubelet::client_config("--tls-cert", certificate, name.clone())
            .map_err(|error| Failure::config(chain(&error)))?;
        let token = match &args.token_file {
            Some(path) => Some(read_token(path)?),
            // Outside of a pod there is none.
            None => read_token(Path::new(SERVICE_ACCOUNT_TOKEN)).ok(),
        };
        Ok(Self { address, tls: Some((Arc::new(config), name)), token })
    }

    /// The answer to one request, or what came of it where it is a refusal by TLS: such an agent
    /// closes with the request unread, which resets the connection after the alert.
    fn exchange(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let authorization =
            self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n"));
        // In one piece: a peer that answers to the first part of it and closes would break the pipe
        // for the second.
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {}\r\n{}\r\n",
            self.address,
            authorization.collect::<String>()
        );
        match &self.tls {
            None => send(&mut stream, &request),
            Some((config, name)) => {
                let connection = ClientConnection::new(Arc::clone(config), name.clone())
                    .map_err(std::io::Error::other)?;
                send(&mut StreamOwned::new(connection, stream), &request)
            }
        }
    }
}

fn send(stream: &mut (impl Read + Write), request: &str) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    match stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer)) {
        // A server need not end TLS before the connection; a page that is cut is no JSON.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => Ok(answer),
        Err(error) if !answer.starts_with(TLS_ALERT) => Err(error),
        _ => Ok(answer),
    }
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::config(format!("--token-file: cannot read {}: {error}", path.display()))
    })?;
    let token = text.trim();
    if token.is_empty() || !token.chars().all(|char| char.is_ascii_graphic()) {
        return Err(Failure::config(format!(
            "--token-file: {} contains no bearer token",
            path.display()
        )));
    }
    Ok(token.to_owned())
}

/// The JSON at a path. HTTP/1.0, so that the answer ends with the connection and comes in one
/// piece.
pub(super) fn get<T: DeserializeOwned>(endpoint: &Endpoint, path: &str) -> Result<T, Failure> {
    let address = endpoint.address;
    let answer = endpoint.exchange(path).map_err(|error| {
        Failure::unavailable(format!(
            "no agent answers at {address}: {error}; start one, or set --address"
        ))
    })?;
    if answer.starts_with(TLS_ALERT) {
        let why = format!(
            "the agent at {address} serves HTTPS: set --tls-cert to its certificate or its CA's"
        );
        return Err(Failure::unavailable(why));
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => serde_json::from_str(body).map_err(|error| {
            Failure::unavailable(format!("{address}{path}: unexpected answer: {error}"))
        }),
        Some("401" | "403") => Err(Failure::unavailable(format!(
            "{address}{path}: {status:?}: set --token-file to the token of a user with permission to get this path"
        ))),
        _ => Err(Failure::unavailable(format!(
            "{address}{path}: {status:?}: not an agent of this version"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Error message of `get` for a server that reads up to `until` and then sends this response.
    fn said(until: &'static [u8], answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(until) {
                request.push(0);
                stream.read_exact(request.last_mut().map(std::slice::from_mut).unwrap()).unwrap();
            }
            stream.write_all(answer).unwrap();
        });
        let failure = get::<serde_json::Value>(
            &Endpoint { address, tls: None, token: None },
            "/api/v1/advice",
        )
        .map(|_| ())
        .unwrap_err();
        server.join().unwrap();
        failure.to_string()
    }

    #[test]
    fn an_agent_with_https_is_reported() {
        // TLS rejects after the five bytes of a record header; the unread rest resets the
        // connection.
        let text = said(b"GET /", b"\x15\x03\x03\x00\x02\x02\x32");
        assert!(text.contains("serves HTTPS: set --tls-cert"), "{text}");
        // What follows need not be text.
        let text = said(b"GET /", b"\x15\x03\x03\xff\xff");
        assert!(text.contains("serves HTTPS: set --tls-cert"), "{text}");
    }

    #[test]
    fn unexpected_and_truncated_answers_are_reported() {
        let text = said(b"\r\n\r\n", b"HTTP/1.0 404 Not Found\r\n\r\n");
        assert!(text.contains("404 Not Found"), "{text}");
        let text = said(b"GET /", b"HTTP/1.0 200 OK\r\n\r\n{\"unfinished\":");
        assert!(text.contains("Connection reset"), "{text}");
    }
}
