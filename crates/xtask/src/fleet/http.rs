//! Plain HTTP: pages for the agents and for Prometheus, and requests to both.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time in which an answer must arrive.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Serves a page for each path on a free port of loopback, until the process ends. A connection
/// stays open for further requests.
pub(super) fn serve<B: AsRef<[u8]>>(
    kind: &'static str,
    body: impl Fn(&str) -> B + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, body) = (listener.local_addr()?, Arc::new(body));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let body = Arc::clone(&body);
            thread::spawn(move || answer_all(stream, kind, |path| body(path)));
        }
    });
    Ok(address)
}

/// Answers the requests of one connection.
fn answer_all<B: AsRef<[u8]>>(
    stream: TcpStream,
    kind: &str,
    body: impl Fn(&str) -> B,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let text = body(request.split(' ').nth(1).unwrap_or_default());
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            text.as_ref().len()
        );
        writer.write_all(head.as_bytes())?;
        writer.write_all(text.as_ref())?;
    }
}

/// Body of the answer to a GET request.
///
/// # Errors
/// No connection, or another status than 200.
pub(super) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    request("GET", address, path)
}

/// Body of the answer to a POST request.
///
/// # Errors
/// As [`get`].
pub(super) fn post(address: SocketAddr, path: &str) -> io::Result<String> {
    request("POST", address, path)
}

fn request(method: &str, address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!(
            "{address}{path}: {}: {body}",
            head.lines().next().unwrap_or_default()
        ))),
    }
}

/// An address that was free a moment ago.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Every byte as `%XX`.
pub(super) fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
