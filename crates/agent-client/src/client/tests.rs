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
    // Of the API server there is no reason; the agent's own is no lack of a token.
    for denied in [
        &b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 13\r\n\r\nunauthorized\n"[..],
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\nforbidden\n",
    ] {
        let text = error(b"\r\n\r\n", denied);
        assert!(text.contains(": set --token-file to the token of a user"), "{text}");
    }
    let text = error(
        b"\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 31\r\n\r\n{\"error\":\"only for local ones\"}",
    );
    assert!(text.ends_with("403 Forbidden: only for local ones"), "{text}");
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
