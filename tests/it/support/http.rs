//! HTTP GET, reduced to the needs of the tests.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Status and body of a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    // HTTP/1.0, so that the response is neither chunked nor kept alive.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

/// An unused port of the loopback address.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Answers every request with the body for its path until the test ends.
pub(crate) fn serve(body: impl Fn(&str) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                request.push(byte[0]);
            }
            let request = String::from_utf8_lossy(&request);
            let body = body(request.split(' ').nth(1).unwrap_or_default());
            let head = format!(
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}",
                body.len()
            );
            let _ = write!(stream, "{head}\r\n\r\n{body}");
        }
    });
    address
}
