//! One GET from a running agent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::exit::Failure;

/// The first byte of a TLS record of the type alert (RFC 8446, 5.1): the answer to what is no TLS.
const TLS_ALERT: &[u8] = &[0x15];

/// For connecting, and for each read and write.
const PATIENCE: Duration = Duration::from_secs(5);

/// The JSON at a path. HTTP/1.0, so that the answer ends with the connection and comes in one piece.
pub(super) fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, Failure> {
    let answer = exchange(address, path).map_err(|error| {
        Failure::unavailable(format!("no agent answers at {address}: {error}; start one, or say --address"))
    })?;
    if answer.starts_with(TLS_ALERT) {
        let why = format!("the agent at {address} serves HTTPS (--tls-cert): ask https://{address}{path} with curl");
        return Err(Failure::unavailable(why));
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(Failure::unavailable(format!("{address}{path} answers {status:?}: no agent of this version")));
    }
    serde_json::from_str(body)
        .map_err(|error| Failure::unavailable(format!("{address}{path} answers something else: {error}")))
}

/// The answer to one request, or what came of it where it is a refusal by TLS: such an agent closes with the request
/// unread, which resets the connection after the alert.
fn exchange(address: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In one piece: who answers to the first part of it and closes would break the pipe for the second.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let mut answer = Vec::new();
    match stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer)) {
        Err(error) if !answer.starts_with(TLS_ALERT) => Err(error),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What is said of an address where this is answered once the request is read up to here.
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
        let failure = get::<serde_json::Value>(address, "/api/v1/advice").map(|_| ()).unwrap_err();
        server.join().unwrap();
        failure.to_string()
    }

    #[test]
    fn an_agent_that_serves_https_is_told_as_such() {
        // TLS refuses after the five bytes of a record's head; what it leaves unread resets the connection.
        let text = said(b"GET /", b"\x15\x03\x03\x00\x02\x02\x32");
        assert!(text.contains("serves HTTPS (--tls-cert)"), "{text}");
        // What follows need not be text.
        let text = said(b"GET /", b"\x15\x03\x03\xff\xff");
        assert!(text.contains("serves HTTPS (--tls-cert)"), "{text}");
    }

    #[test]
    fn another_answer_is_told_by_its_status_and_one_that_is_cut_by_the_error() {
        let text = said(b"\r\n\r\n", b"HTTP/1.0 404 Not Found\r\n\r\n");
        assert!(text.contains("404 Not Found"), "{text}");
        let text = said(b"GET /", b"HTTP/1.0 200 OK\r\n\r\n{\"unfinished\":");
        assert!(text.contains("Connection reset"), "{text}");
    }
}
