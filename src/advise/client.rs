//! One GET from a running agent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::exit::Failure;

/// For connecting, and for each read and write.
const PATIENCE: Duration = Duration::from_secs(5);

/// The JSON at a path. HTTP/1.0, so that the answer ends with the connection and comes in one piece.
pub(super) fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, Failure> {
    let answer = exchange(address, path).map_err(|error| {
        Failure::unavailable(format!("no agent answers at {address}: {error}; start one, or say --address"))
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(Failure::unavailable(format!("{address}{path} answers {status:?}: no agent of this version")));
    }
    serde_json::from_str(body)
        .map_err(|error| Failure::unavailable(format!("{address}{path} answers something else: {error}")))
}

fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
