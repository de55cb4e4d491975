//! The event stream: each frame is serialized once and offered to all open streams. A reader that
//! has not taken the previous frame misses this one.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use api::Frame;
use axum::body::{Body, Bytes};
use hyper::body::Frame as Chunk;
use timeline::Timeline;
use tokio::sync::mpsc;

use super::json::json;
use crate::auth::Lease;
use crate::place::Place;

/// Time without a frame after which a comment is sent, so that neither side takes the connection
/// for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Comment of the event stream, ignored by readers.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// Events that wait for a reader, beside the one that is being sent.
const WAITING: usize = 1;

/// The open streams.
pub(super) struct Streams(Mutex<StreamReaders>);

struct StreamReaders {
    readers: Vec<StreamReader>,
    /// Whether new streams are admitted.
    open: bool,
}

struct StreamReader {
    events: mpsc::Sender<Bytes>,
    /// Time of the last frame offered to it. A stream begins with the latest frame, which may then
    /// be offered to all.
    last_ms: Option<u64>,
}

/// A frame as an event.
struct Event {
    at_ms: u64,
    text: Bytes,
}

impl Default for Streams {
    fn default() -> Self {
        Self(Mutex::new(StreamReaders { readers: Vec::new(), open: true }))
    }
}

impl Streams {
    /// Sends each frame of the timeline to the open streams.
    pub(super) async fn send(&self, timeline: &Timeline) {
        let mut frames = timeline.subscribe();
        loop {
            let is_new = match tokio::time::timeout(KEEP_ALIVE, frames.changed()).await {
                Ok(Ok(())) => true,
                Ok(Err(_)) => return,
                Err(_) => false,
            };
            if self.count() == 0 {
                continue;
            }
            if !is_new {
                self.keep_alive();
            } else if let Some(event) = event_of(timeline).await {
                self.offer(&event);
            }
        }
    }

    /// Number of open streams.
    pub(super) fn count(&self) -> usize {
        let mut state = self.lock();
        state.readers.retain(|reader| !reader.events.is_closed());
        state.readers.len()
    }

    /// Ends all streams and admits no more.
    pub(super) fn end(&self) {
        *self.lock() = StreamReaders { readers: Vec::new(), open: false };
    }

    fn offer(&self, event: &Event) {
        for reader in &mut self.lock().readers {
            if reader.last_ms.replace(event.at_ms) != Some(event.at_ms) {
                // A full channel means that the reader is slow: it gets a later frame.
                let _ = reader.events.try_send(event.text.clone());
            }
        }
    }

    fn keep_alive(&self) {
        self.lock().readers.iter().for_each(|reader| drop(reader.events.try_send(COMMENT)));
    }

    /// A new stream, which begins with the latest frame. It ends with its lease.
    pub(super) async fn open(
        &self,
        timeline: &Timeline,
        place: Place,
        lease: Option<Lease>,
    ) -> Body {
        let first = event_of(timeline).await;
        let ended = lease.map(|lease| Box::pin(lease.ended()) as Ended);
        Body::new(EventStream { events: self.subscribe(first), place, ended })
    }

    /// A new stream, which begins with this event.
    fn subscribe(&self, first: Option<Event>) -> mpsc::Receiver<Bytes> {
        let (reader, events) = mpsc::channel(WAITING);
        let last_ms = first.as_ref().map(|event| event.at_ms);
        let _ = reader.try_send(first.map_or(COMMENT, |event| event.text));
        let mut state = self.lock();
        if state.open {
            state.readers.push(StreamReader { events: reader, last_ms });
        }
        events
    }

    fn lock(&self) -> MutexGuard<'_, StreamReaders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest frame as an event; `None` before the first. Serialized on the rendering thread: this
/// one answers the probes.
async fn event_of(timeline: &Timeline) -> Option<Event> {
    let timeline = timeline.clone();
    let serialized =
        tokio::task::spawn_blocking(move || timeline.latest().map(|frame| event(&frame)));
    serialized.await.ok().flatten()
}

/// A server-sent event. JSON has no line breaks.
fn event(frame: &Frame) -> Event {
    let mut text = format!("event: frame\nid: {}\ndata: ", frame.at_ms).into_bytes();
    text.extend_from_slice(&json(frame));
    text.extend_from_slice(b"\n\n");
    Event { at_ms: frame.at_ms, text: text.into() }
}

/// Completes when the stream must end.
type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Body of a stream.
struct EventStream {
    events: mpsc::Receiver<Bytes>,
    place: Place,
    /// `None` if it needs no token.
    ended: Option<Ended>,
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Bytes>, Infallible>>> {
        if self.ended.as_mut().is_some_and(|ended| ended.as_mut().poll(context).is_ready()) {
            return Poll::Ready(None);
        }
        let event = ready!(self.events.poll_recv(context));
        // The connection asks for an event only when its client has taken the previous ones.
        self.place.took_event();
        Poll::Ready(event.map(|event| Ok(Chunk::data(event))))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.place.end_stream();
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::task::Waker;

    use axum::body::HttpBody as _;
    use metrics::{AgentMetrics, Build};

    use super::*;
    use crate::place::Places;

    fn numbered(at_ms: u64) -> Event {
        Event { at_ms, text: at_ms.to_string().into() }
    }

    #[test]
    fn the_first_frame_of_a_stream_is_not_sent_again() {
        let streams = Streams::default();
        let mut events = streams.subscribe(Some(numbered(1)));
        assert_eq!(events.try_recv(), Ok(Bytes::from_static(b"1")));
        streams.offer(&numbered(1));
        assert!(events.try_recv().is_err());
        streams.offer(&numbered(2));
        assert_eq!(events.try_recv(), Ok(Bytes::from_static(b"2")));
    }

    #[test]
    fn a_slow_reader_misses_frames_and_others_do_not() {
        let streams = Streams::default();
        let mut slow = streams.subscribe(None);
        let mut fast = streams.subscribe(None);
        for at_ms in [1, 2] {
            assert!(fast.try_recv().is_ok());
            streams.offer(&numbered(at_ms));
        }
        assert_eq!(fast.try_recv(), Ok(Bytes::from_static(b"2")));
        assert_eq!(slow.try_recv(), Ok(COMMENT));
        assert!(slow.try_recv().is_err(), "frames do not pile up");
        streams.offer(&numbered(3));
        assert_eq!(slow.try_recv(), Ok(Bytes::from_static(b"3")));
        drop(slow);
        assert_eq!(streams.count(), 1);
    }

    #[test]
    fn ended_streams_end_and_no_more_are_admitted() {
        let streams = Streams::default();
        let mut before = streams.subscribe(None);
        streams.end();
        let mut after = streams.subscribe(None);
        for events in [&mut before, &mut after] {
            assert_eq!(events.try_recv(), Ok(COMMENT));
            assert_eq!(events.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        }
    }

    #[test]
    fn a_stream_ends_with_its_lease_even_if_events_wait() {
        let metrics = AgentMetrics::new(Build { version: "", revision: "" });
        let places = Places::new(Arc::new(metrics));
        let next = |ended: Ended| {
            let (place, _cut) = places.open(Ipv4Addr::LOCALHOST.into());
            let events = Streams::default().subscribe(Some(numbered(1)));
            let mut stream = EventStream { events, place, ended: Some(ended) };
            let polled = Pin::new(&mut stream).poll_frame(&mut Context::from_waker(Waker::noop()));
            polled.map(|chunk| chunk.map(|chunk| chunk.unwrap().into_data().unwrap()))
        };
        let event = Bytes::from_static(b"1");
        assert_eq!(next(Box::pin(future::pending())), Poll::Ready(Some(event)));
        assert_eq!(next(Box::pin(future::ready(()))), Poll::Ready(None));
    }

    #[test]
    fn an_event_is_one_line_of_data_with_any_name() {
        let mut frame = Frame { at_ms: 7, ..Frame::default() };
        frame.node.name = "a\n\ndata: b\r".to_owned();
        let event = String::from_utf8(event(&frame).text.to_vec()).unwrap();
        assert!(event.starts_with("event: frame\nid: 7\ndata: {") && event.ends_with("}\n\n"));
        assert_eq!(event.matches('\n').count(), 4, "{event}");
        assert!(!event.contains('\r'), "{event}");
    }
}
