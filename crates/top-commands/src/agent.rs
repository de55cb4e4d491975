//! The view of a running agent: its history, its event stream and its advice.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use advisor::AdviceReport;
use agent_client::{AgentClient, block_on};
use console::{Failure, output};
use timeline::{Frame, Points};
use tokio::task::JoinHandle;
use top::{App, Look, Source, Update};

use crate::findings::advice;
use crate::on_terminal::{columns, show};
use crate::signals::Signals;

/// Requests for the history, the best first: an agent with many containers rejects long ones, and an
/// earlier one does not know `aggressors`.
const HISTORIES: [&str; 4] =
    ["seconds=300&aggressors=6", "seconds=300", "seconds=60&aggressors=6", "seconds=60"];
/// Pause before the next attempt to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two requests for the advice, which changes slowly.
const ADVICE_EVERY: Duration = Duration::from_secs(10);
/// Maximum size of an event, bytes.
const LONGEST_EVENT: usize = 64 << 20;

/// Shows the rows of a running agent that match a filter, or prints them once as a table.
///
/// # Errors
/// No agent answers at first, or it has no JSON API. Later failures are shown in the view.
pub fn show_agent(client: AgentClient, filter: String, is_once: bool) -> Result<(), Failure> {
    block_on(async {
        let mut signals = Signals::new()?;
        let first: Frame = client.get("/api/v1/frame").await?;
        let mut app = App::new(Look::from_env()).with_filter(filter);
        if is_once {
            history(&client).await.into_iter().for_each(|update| app.apply(update));
            app.apply(Update::Frame(Box::new(first)));
            output::show(&top::table(&app, columns()));
            return Ok(());
        }
        let end = async {
            signals.any().await;
            Ok(())
        };
        show(app, Remote::start(client), end).await
    })
}

/// Updates of a running agent; the connection ends on drop.
struct Remote {
    updates: Receiver<Update>,
    following: JoinHandle<()>,
}

impl Remote {
    fn start(client: AgentClient) -> Self {
        let (out, updates) = channel();
        Self { updates, following: tokio::spawn(follow(client, out)) }
    }
}

impl Source for Remote {
    fn updates(&mut self) -> Vec<Update> {
        self.updates.try_iter().collect()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// Follows the agent, and connects again when the connection is lost.
async fn follow(client: AgentClient, out: Sender<Update>) {
    loop {
        if let Err(failure) = stream(&client, &out).await {
            // The view has ended if nobody receives.
            let _ = out.send(Update::Status(format!("{failure}; trying again")));
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The longest history that the agent provides; the view also works without one.
async fn history(client: &AgentClient) -> Option<Update> {
    for query in HISTORIES {
        let path = format!("/api/v1/history?{query}");
        if let Ok(points) = client.get::<Points>(&path).await {
            return Some(Update::History(points));
        }
    }
    None
}

/// Passes on the history and then the frames of one connection. The stream is open before the
/// history is requested, so that no frame is missing between them.
///
/// # Errors
/// The agent does not answer. A connection that breaks later is no error: the next one reports it.
async fn stream(client: &AgentClient, out: &Sender<Update>) -> Result<(), Failure> {
    let mut answer = client.open("/api/v1/stream").await?;
    if let Some(update) = history(client).await {
        let _ = out.send(update);
    }
    let mut events = Events::default();
    let mut advised: Option<Instant> = None;
    while let Ok(Some(part)) = answer.next().await {
        for frame in events.add(&part) {
            let _ = out.send(Update::Frame(Box::new(frame)));
        }
        if advised.is_none_or(|at| at.elapsed() >= ADVICE_EVERY) {
            advised = Some(Instant::now());
            if let Ok(report) = client.get::<AdviceReport>("/api/v1/advice").await {
                let _ = out.send(Update::Advice(advice(report)));
            }
        }
    }
    Ok(())
}

/// Splits a stream into its events.
#[derive(Default)]
struct Events {
    unread: Vec<u8>,
}

impl Events {
    /// Adds a part of the stream; returns the frames that it completes.
    fn add(&mut self, part: &[u8]) -> Vec<Frame> {
        self.unread.extend_from_slice(part);
        let mut frames = Vec::new();
        while let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.unread.drain(..end + 2).collect();
            frames.extend(frame(&event));
        }
        if self.unread.len() > LONGEST_EVENT {
            self.unread.clear();
        }
        frames
    }
}

/// The frame of an event; `None` for comments and for events of later versions.
fn frame(event: &[u8]) -> Option<Frame> {
    let mut lines = event.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    if !lines.clone().any(|line| line == b"event: frame") {
        return None;
    }
    let data = lines.find_map(|line| line.strip_prefix(b"data:"))?;
    serde_json::from_slice(data).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use agent_client::{AgentArgs, ConnectionArgs};

    use super::*;

    #[test]
    fn events_are_split_at_empty_lines_wherever_the_parts_end() {
        let text = ":\n\nevent: frame\nid: 1\ndata: {\"atMs\":1000}\n\nevent: frame\ndata: {\"atMs\":2000}\n\n";
        for length in 1..text.len() {
            let mut events = Events::default();
            let frames = text.as_bytes().chunks(length).flat_map(|part| events.add(part));
            let times: Vec<u64> = frames.map(|frame| frame.at_ms).collect();
            assert_eq!(times, [1000, 2000], "parts of {length} bytes");
        }
    }

    /// Answers the requests of two connections: each stream ends after one frame.
    fn serve_twice(listener: &TcpListener) {
        let mut frames = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let body = if request.starts_with("GET /api/v1/stream ") {
                frames += 1;
                format!("event: frame\ndata: {{\"atMs\":{}}}\n\n", 1000 * frames)
            } else if request.starts_with("GET /api/v1/history?") {
                format!("{{\"atMs\":[{}],\"seconds\":[1],\"containers\":[]}}", 1000 * frames)
            } else {
                "{\"containers\":[]}".to_owned()
            };
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
    }

    #[test]
    fn the_history_is_requested_again_after_an_interruption() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve_twice(&listener));
        let connection = ConnectionArgs::default();
        let args = AgentArgs { address, tls_cert: None, connection };
        let client = AgentClient::new(&args).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _inside = runtime.enter();
        let remote = Remote::start(client);
        let next = || loop {
            match remote.updates.recv_timeout(Duration::from_secs(60)).unwrap() {
                Update::History(points) => return ("history", points.at_ms[0]),
                Update::Frame(frame) => return ("frame", frame.at_ms),
                _ => {}
            }
        };
        let expected = [("history", 1000), ("frame", 1000), ("history", 2000), ("frame", 2000)];
        assert_eq!([next(), next(), next(), next()], expected);
    }

    #[test]
    fn unknown_events_are_ignored() {
        let mut events = Events::default();
        assert!(events.add(b"event: later\ndata: {}\n\nretry: 5\n\n").is_empty());
    }
}
