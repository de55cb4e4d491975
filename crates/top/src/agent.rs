//! The view of a running agent: its history, its event stream and its advice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use agent_client::{AgentClient, block_on};
use api::{AdviceReport, Frame, NodeAnswer, PairSeries, PodName, Points, Series};
use console::{Failure, output};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::findings::advice;
use crate::look::Look;
use crate::on_terminal::{columns, show};
use crate::plain::table;
use crate::signals::Signals;
use crate::source::{Control, Position, Source, Update};

/// Requests for the history, the best first: an earlier agent does not know `aggressors`.
const HISTORIES: [&str; 2] = ["seconds=300&aggressors=6", "seconds=300"];
/// Maximum number of containers in one request for the history: an agent answers with at most
/// 500,000 values, and each container has ten measures and six aggressors for 300 seconds.
const PART: usize = 100;
/// Pause before the next attempt to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two requests for the advice, which changes slowly.
const ADVICE_EVERY: Duration = Duration::from_secs(10);
/// Maximum size of an event, bytes.
const MAX_EVENT: usize = 64 << 20;

/// The part of an agent's node to show.
#[derive(Debug, Default)]
pub struct Shown {
    /// The filter that the view shows.
    pub label: String,
    /// Namespace and name of each pod; `None` for all pods of the node.
    pub pods: Option<Vec<(String, String)>>,
    /// Lines above the view; a printed table has none.
    pub notes: Vec<String>,
}

impl Shown {
    fn app(self) -> App {
        let app = App::new(Look::from_env()).with_notes(self.notes);
        match self.pods {
            Some(pods) => {
                let name = |(namespace, pod)| PodName { namespace, pod };
                app.with_pods(self.label, pods.into_iter().map(name))
            }
            None => app,
        }
    }
}

/// Shows the pods of a running agent's node, or prints them once as a table.
///
/// # Errors
/// No agent answers at first, or it has no JSON API. Later failures are shown in the view.
pub fn show_agent(client: AgentClient, shown: Shown, is_once: bool) -> Result<(), Failure> {
    block_on(async {
        let mut signals = Signals::new()?;
        let started = async {
            let first: Frame = client.get("/api/v1/frame").await?;
            let history = if is_once { history(&client, "").await } else { None };
            Ok::<_, Failure>((first, history))
        };
        let (first, history) = tokio::select! {
            started = started => started?,
            () = signals.any() => {
                return Err(Failure::unavailable("interrupted before the agent answered".to_owned()));
            }
        };
        let mut app = shown.app();
        if is_once {
            history.into_iter().for_each(|update| app.apply(update));
            app.apply(Update::Frame(Box::new(first)));
            output::show(&table(&app, columns()));
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
    following: [JoinHandle<()>; 2],
    /// The time to show.
    wanted: watch::Sender<Wanted>,
    /// End of the latest frame, milliseconds since the epoch.
    latest_ms: u64,
    /// Whether the last updates were those of the past.
    is_past: bool,
}

/// A time of the agent's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Now,
    /// Milliseconds since the epoch; `is_typed` if it is not moved into the recording.
    At {
        at_ms: u64,
        latest_ms: u64,
        is_typed: bool,
    },
}

impl Remote {
    fn start(client: AgentClient) -> Self {
        let (out, updates) = channel();
        let (wanted, times) = watch::channel(Wanted::Now);
        let client = Arc::new(client);
        let following = [
            tokio::spawn(show_times(Arc::clone(&client), times, out.clone())),
            tokio::spawn(follow(client, out)),
        ];
        Self { updates, following, wanted, latest_ms: 0, is_past: false }
    }
}

impl Source for Remote {
    fn updates(&mut self) -> Vec<Update> {
        let mut updates: Vec<Update> = self.updates.try_iter().collect();
        updates.retain(|update| {
            match update {
                Update::Frame(frame) => self.latest_ms = frame.at_ms,
                Update::Past(..) => self.is_past = true,
                Update::Live => self.is_past = false,
                _ => {}
            }
            !(self.is_past && matches!(update, Update::Frame(_) | Update::History(_)))
        });
        updates
    }

    fn control(&mut self, control: Control) {
        let (latest_ms, wanted) = (self.latest_ms, *self.wanted.borrow());
        let from = match wanted {
            Wanted::Now => latest_ms,
            Wanted::At { at_ms, .. } => at_ms,
        };
        let Some(at_ms) = control.target(from, latest_ms) else { return };
        let is_typed = matches!(control, Control::At(_));
        let to = match at_ms < latest_ms {
            true => Wanted::At { at_ms, latest_ms, is_typed },
            false => Wanted::Now,
        };
        self.wanted.send_if_modified(|wanted| std::mem::replace(wanted, to) != to);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.following.iter().for_each(JoinHandle::abort);
    }
}

/// Shows each wanted time. A time that was wanted meanwhile is left out.
async fn show_times(
    client: Arc<AgentClient>,
    mut times: watch::Receiver<Wanted>,
    out: Sender<Update>,
) {
    while times.changed().await.is_ok() {
        let wanted = *times.borrow_and_update();
        match wanted {
            Wanted::Now => {
                let _ = out.send(Update::Live);
                history(&client, "").await.into_iter().for_each(|update| drop(out.send(update)));
            }
            Wanted::At { at_ms, latest_ms, is_typed } => {
                let updates = past(&client, at_ms, latest_ms, is_typed).await;
                let updates =
                    updates.unwrap_or_else(|failure| vec![Update::Status(failure.to_string())]);
                updates.into_iter().for_each(|update| drop(out.send(update)));
            }
        }
    }
}

/// The frame and the history of an earlier time.
///
/// # Errors
/// The agent does not answer, or has no data of this time.
async fn past(
    client: &AgentClient,
    at_ms: u64,
    end_ms: u64,
    is_typed: bool,
) -> Result<Vec<Update>, Failure> {
    let node: NodeAnswer = client.get("/api/v1/node").await?;
    let start_ms = node.history.begin_ms.unwrap_or_default();
    let at_ms = if is_typed { at_ms } else { at_ms.max(start_ms + 1000) };
    let until = format!("&until={at_ms}");
    let frame: Frame = client.get(&format!("/api/v1/frame?seconds=1{until}")).await?;
    let points = match history(client, &until).await {
        Some(Update::History(points)) => points,
        _ => Points::default(),
    };
    let position = Position { at_ms, start_ms, end_ms, speed: 0.0, is_paused: true };
    Ok(vec![Update::Position(position), Update::Past(points, Box::new(frame))])
}

/// Follows the agent, and connects again when the connection is lost.
async fn follow(client: Arc<AgentClient>, out: Sender<Update>) {
    loop {
        if let Err(failure) = stream(&client, &out).await {
            // Without a receiver the view has ended.
            let _ = out.send(Update::Status(format!("{failure}; trying again")));
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The history, in one answer or in parts; the view also works without one.
/// `until` is the parameter with its end, empty for now.
async fn history(client: &AgentClient, until: &str) -> Option<Update> {
    for query in HISTORIES {
        let path = format!("/api/v1/history?{query}{until}");
        if let Ok(points) = client.get::<Points>(&path).await {
            return Some(Update::History(points));
        }
        // An agent with many containers rejects a request for all of them.
        if let Ok(points) = history_in_parts(client, &path, until).await {
            return Some(Update::History(points));
        }
    }
    None
}

/// The history of the running containers, some pods at a time.
///
/// # Errors
/// The agent rejects one of the requests.
async fn history_in_parts(
    client: &AgentClient,
    path: &str,
    until: &str,
) -> Result<Points, Failure> {
    let frame = match until {
        "" => "/api/v1/frame".to_owned(),
        until => format!("/api/v1/frame?seconds=300{until}"),
    };
    let frame: Frame = client.get(&frame).await?;
    let mut points = Points::default();
    for uids in parts(&frame) {
        let uids: String = uids.iter().map(|uid| format!("&uid={uid}")).collect();
        let part: Points = client.get(&format!("{path}{uids}")).await?;
        if points.at_ms.is_empty() {
            points = part;
        } else {
            append(&mut points, part);
        }
    }
    Ok(points)
}

/// UIDs of the pods, in parts of at most [`PART`] containers. A pod is never split.
fn parts(frame: &Frame) -> Vec<Vec<&str>> {
    let mut containers: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &frame.containers {
        *containers.entry(&row.uid).or_default() += 1;
    }
    let mut parts: Vec<Vec<&str>> = Vec::new();
    let mut size = PART;
    for (uid, count) in containers {
        if size + count > PART || parts.is_empty() {
            parts.push(Vec::new());
            size = 0;
        }
        size += count;
        parts.last_mut().into_iter().for_each(|part| part.push(uid));
    }
    parts
}

/// Adds the series of a later answer at the times of the first one. The seconds between the two
/// answers are left out: the stream has them.
fn append(points: &mut Points, part: Points) {
    let at: Vec<Option<usize>> =
        points.at_ms.iter().map(|at_ms| part.at_ms.iter().position(|one| one == at_ms)).collect();
    let moved = |values: Vec<Option<f64>>| -> Vec<Option<f64>> {
        at.iter().map(|at| values.get((*at)?).copied().flatten()).collect()
    };
    points.containers.extend(part.containers.into_iter().map(|series| Series {
        measures: series.measures.into_iter().map(|(name, all)| (name, moved(all))).collect(),
        ..series
    }));
    let pairs = part.pairs.into_iter();
    points.pairs.extend(pairs.map(|pair| PairSeries { wait: moved(pair.wait), ..pair }));
}

/// Passes on the history and then the frames of one connection. The stream is open before the
/// history is requested, so that no frame is missing between them.
///
/// # Errors
/// The agent does not answer. A connection that breaks later is not an error: the next one reports
/// it.
async fn stream(client: &AgentClient, out: &Sender<Update>) -> Result<(), Failure> {
    let mut answer = client.open("/api/v1/stream").await?;
    if let Some(update) = history(client, "").await {
        let _ = out.send(update);
    }
    let mut events = EventSplitter::default();
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
struct EventSplitter {
    unread: Vec<u8>,
}

impl EventSplitter {
    /// Adds a part of the stream; returns the frames that it completes.
    fn add(&mut self, part: &[u8]) -> Vec<Frame> {
        self.unread.extend_from_slice(part);
        let mut frames = Vec::new();
        while let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.unread.drain(..end + 2).collect();
            frames.extend(frame(&event));
        }
        if self.unread.len() > MAX_EVENT {
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
mod tests;
