//! Handlers of the JSON API.

use std::sync::Arc;
use std::time::Duration;

use api::{Frame, KEPT, Measure, NodeTopology, PodsAnswer};
use axum::body::Bytes;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use timeline::{Selection, Timeline};

use super::alone::Alone;
use super::answers;
use super::json::{gzip, json, reads_gzip};
use super::parameters::Parameters;
use super::past::NoWindow;
use super::views::Views;
use crate::auth::Lease;
use crate::page::failed;
use crate::place::Place;

/// Values of `seconds` if the request has none.
const POD_SECONDS: u64 = 300;
const HISTORY_SECONDS: u64 = 60;
const INTERFERENCE_SECONDS: u64 = 300;
const FRAME_SECONDS: u64 = 1;
/// Maximum number of values in an answer of the history: a few megabytes of JSON.
const MAX_VALUES: usize = 500_000;

/// Reason for an answer without data.
enum Rejection {
    /// 400: a wrong parameter.
    Parameter(String),
    /// 403: not for this client.
    Forbidden(&'static str),
    /// 404: no such pod, or no data of this time.
    NotFound(String),
    /// 503: no data yet, or not readable.
    Unavailable(&'static str),
}

type Answer = Result<Bytes, Rejection>;
/// Common arguments of the handlers.
type Call = (State<Arc<Views>>, Extension<Place>, HeaderMap, RawQuery);

/// `GET /api/v1/node`.
pub(super) async fn node(call: Call) -> Response {
    answer(call, &[], 0, |views, parameters| {
        Ok(json(&answers::node(views, latest(views)?, parameters.is_local)))
    })
    .await
}

/// `GET /api/v1/pods`.
pub(super) async fn pods(call: Call) -> Response {
    answer(call, &["seconds", "until"], FRAME_SECONDS, |views, parameters| {
        Ok(json(&PodsAnswer::from(mean(views, parameters)?)))
    })
    .await
}

/// `GET /api/v1/pods/{uid}`.
pub(super) async fn pod(Path(uid): Path<String>, call: Call) -> Response {
    answer(call, &["seconds", "until", "points"], POD_SECONDS, move |views, parameters| {
        let (timeline, frame) = history_of(views, parameters)?;
        let pod = answers::pod(views, (&timeline, &frame), &uid, parameters.span);
        let pod = pod.ok_or_else(|| {
            Rejection::NotFound(format!("{uid}: no running pod with this UID; see /api/v1/pods"))
        })?;
        Ok(json(&pod))
    })
    .await
}

/// `GET /api/v1/topology`.
pub(super) async fn topology(call: Call) -> Response {
    answer(call, &[], 0, |views, _| {
        let topology = views.topology.get().map_err(|error| unreadable("topology", &error))?;
        Ok(json(&with_load(topology, views.timeline.latest())))
    })
    .await
}

/// `GET /api/v1/interference`.
pub(super) async fn interference(call: Call) -> Response {
    answer(call, &["seconds", "until"], INTERFERENCE_SECONDS, |views, parameters| {
        let timeline = match parameters.is_past() {
            true => views.window(parameters)?.timeline,
            false => views.timeline.clone(),
        };
        Ok(json(&timeline.aggressors(parameters.span)))
    })
    .await
}

/// `GET /api/v1/pins`.
pub(super) async fn pins(call: Call) -> Response {
    answer(call, &[], 0, |views, _| {
        views.pins.get().map(|pins| json(&pins)).map_err(|error| unreadable("pins", &error))
    })
    .await
}

/// `GET /api/v1/doctor`.
pub(super) async fn doctor(call: Call) -> Response {
    let (State(views), Extension(place), ..) = &call;
    // Findings contain paths and addresses, and gathering them costs CPU time.
    if !is_local(views, place) {
        return rejection_response(&Rejection::Forbidden(
            "only for clients on the node itself, such as kubectl cpuwarden doctor, or with \
             --metrics-auth",
        ));
    }
    let examining = views.examining.clone();
    answer_alone(examining, call, &[], 0, |views, _| {
        let findings = views.doctor.get().map_err(|error| unreadable("findings", &error))?;
        Ok(json(&findings))
    })
    .await
}

/// `GET /api/v1/recording`.
pub(super) async fn recording(call: Call) -> Response {
    let reading = call.0.reading.clone();
    // It is compressed anyway.
    let call = (call.0, call.1, HeaderMap::new(), call.3);
    let known = &["seconds", "until"];
    let mut response = answer_alone(reading, call, known, KEPT as u64, |views, parameters| {
        // Fails with the reason if there is nothing to record yet.
        latest(views)?;
        Ok(views.file(parameters)?.into())
    })
    .await;
    if response.status().is_success() {
        let binary = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, binary);
    }
    response
}

/// `GET /api/v1/frame`.
pub(super) async fn frame(call: Call) -> Response {
    let known = &["seconds", "until"];
    answer(call, known, FRAME_SECONDS, |views, parameters| Ok(json(&mean(views, parameters)?)))
        .await
}

/// `GET /api/v1/history`.
pub(super) async fn history(call: Call) -> Response {
    let known = &["seconds", "until", "points", "uid", "measure", "aggressors"];
    answer(call, known, HISTORY_SECONDS, points).await
}

/// `GET /api/v1/overview`.
pub(super) async fn overview(call: Call) -> Response {
    let reading = call.0.reading.clone();
    let known = &["seconds", "until", "points"];
    answer_alone(reading, call, known, KEPT as u64, |views, parameters| {
        Ok(json(&views.overview(parameters)?))
    })
    .await
}

/// `GET /api/v1/stream`.
pub(super) async fn stream(
    State(views): State<Arc<Views>>,
    Extension(place): Extension<Place>,
    lease: Option<Extension<Lease>>,
) -> Response {
    let lease = lease.map(|Extension(lease)| lease);
    let body = views.streams.open(&views.timeline, place, lease).await;
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

fn points(views: &Views, parameters: &Parameters) -> Answer {
    let Parameters { span, uids, measures, aggressors, points, .. } = parameters;
    let measures = if measures.is_empty() { &Measure::ALL[..] } else { measures };
    let is_selected = |uid: &str| uids.is_empty() || uids.iter().any(|selected| selected == uid);
    let (timeline, frame) = history_of(views, parameters)?;
    let rows = frame.containers.iter().filter(|row| is_selected(&row.uid)).count();
    let frames = usize::try_from(span.as_secs().min(*points)).unwrap_or(KEPT);
    // A pod has at least one container.
    let values = rows * (measures.len() + aggressors) * frames;
    if values > MAX_VALUES {
        return Err(Rejection::Parameter(format!(
            "{values} values are too many, at most {MAX_VALUES}: name pods with uid, name \
             measures, or ask for fewer seconds, points or aggressors"
        )));
    }
    let selection = Selection { measures, aggressors: *aggressors, span: *span };
    Ok(json(&timeline.points(|row| is_selected(&row.uid), &selection)))
}

/// The history with the window, and the frame that has its containers.
fn history_of(views: &Views, parameters: &Parameters) -> Result<(Timeline, Frame), Rejection> {
    if !parameters.is_past() {
        return Ok((views.timeline.clone(), latest(views)?));
    }
    let window = views.window(parameters)?;
    Ok((window.timeline, window.mean))
}

/// The mean of the frames in the window, by default the latest frame.
fn mean(views: &Views, parameters: &Parameters) -> Result<Frame, Rejection> {
    let is_one = parameters.until_ms.is_none() && parameters.span.as_secs() == FRAME_SECONDS;
    if is_one { latest(views) } else { Ok(views.window(parameters)?.mean) }
}

impl From<NoWindow> for Rejection {
    fn from(none: NoWindow) -> Self {
        match none {
            NoWindow::Forbidden => Self::Forbidden(
                "times before the last ten minutes are only for clients on the node itself, such \
                 as a forwarded port, or with --metrics-auth",
            ),
            NoWindow::Empty(None) => Self::Unavailable(NO_DATA),
            NoWindow::Empty(Some((begin_ms, end_ms))) => Self::NotFound(format!(
                "no data of this time: the history has {} to {}",
                utc(begin_ms),
                utc(end_ms)
            )),
            NoWindow::Unreadable(error) => unreadable("recording", &error.into()),
        }
    }
}

fn is_local(views: &Views, place: &Place) -> bool {
    views.is_protected || place.peer.to_canonical().is_loopback()
}

/// Parses the parameters, and computes the answer on the rendering thread: this one answers the
/// probes. What reads the recording runs on a thread of its own.
async fn answer(
    call: Call,
    known: &[&str],
    seconds: u64,
    compute: impl FnOnce(&Views, &Parameters) -> Answer + Send + 'static,
) -> Response {
    let parameters = match parameters(&call, known, seconds) {
        Ok(parameters) => parameters,
        Err(rejection) => return rejection_response(&rejection),
    };
    let (State(views), Extension(place), headers, _) = call;
    let is_gzip = reads_gzip(&headers);
    let (is_past, reading) = (parameters.is_past(), views.reading.clone());
    let compute = move || Computed::new(compute(&views, &parameters), is_gzip);
    let computed = match is_past {
        true => reading.run(compute).await,
        false => tokio::task::spawn_blocking(compute).await.map_err(Into::into),
    };
    response(&place, computed)
}

/// As [`answer`], on a thread of its own, for what may take seconds.
async fn answer_alone(
    alone: Alone,
    call: Call,
    known: &[&str],
    seconds: u64,
    compute: impl FnOnce(&Views, &Parameters) -> Answer + Send + 'static,
) -> Response {
    let parameters = match parameters(&call, known, seconds) {
        Ok(parameters) => parameters,
        Err(rejection) => return rejection_response(&rejection),
    };
    let (State(views), Extension(place), headers, _) = call;
    let is_gzip = reads_gzip(&headers);
    let compute = move || Computed::new(compute(&views, &parameters), is_gzip);
    response(&place, alone.run(compute).await)
}

fn parameters(
    (State(views), Extension(place), _, RawQuery(query)): &Call,
    known: &[&str],
    seconds: u64,
) -> Result<Parameters, Rejection> {
    let parsed = Parameters::parse(query.as_deref().unwrap_or_default(), known, seconds);
    let is_local = is_local(views, place);
    parsed.map(|parsed| Parameters { is_local, ..parsed }).map_err(Rejection::Parameter)
}

/// An answer as it is sent.
struct Computed {
    answer: Answer,
    is_gzip: bool,
}

impl Computed {
    /// Compresses the answer if the client accepts it and it is large.
    fn new(answer: Answer, accepts_gzip: bool) -> Self {
        let compressed = answer
            .as_ref()
            .ok()
            .filter(|_| accepts_gzip)
            .and_then(|json| gzip(json, Compression::fast()));
        match compressed {
            Some(compressed) => Self { answer: Ok(compressed), is_gzip: true },
            None => Self { answer, is_gzip: false },
        }
    }
}

fn response(place: &Place, computed: anyhow::Result<Computed>) -> Response {
    let Computed { answer, is_gzip } = match computed {
        Ok(computed) => computed,
        Err(error) => return failed(&error),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(rejection) => return rejection_response(&rejection),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::VARY, "Accept-Encoding"),
    ];
    let mut response = (headers, place.body(answer)).into_response();
    if is_gzip {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    response
}

const NO_DATA: &str = "no data yet: the first second has not ended; try again in a second";

fn latest(views: &Views) -> Result<Frame, Rejection> {
    views.timeline.latest().ok_or(Rejection::Unavailable(NO_DATA))
}

/// A time in UTC.
fn utc(ms: u64) -> String {
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

/// Details go to the log, not to the client.
fn unreadable(what: &str, error: &anyhow::Error) -> Rejection {
    tracing::warn!(error = format!("{error:#}"), "cannot read the {what} of this node");
    Rejection::Unavailable("cannot be read on this node; the agent's log has the reason")
}

fn rejection_response(rejection: &Rejection) -> Response {
    let (status, text) = match rejection {
        Rejection::Parameter(text) => (StatusCode::BAD_REQUEST, text.as_str()),
        Rejection::Forbidden(text) => (StatusCode::FORBIDDEN, *text),
        Rejection::NotFound(text) => (StatusCode::NOT_FOUND, text.as_str()),
        Rejection::Unavailable(text) => (StatusCode::SERVICE_UNAVAILABLE, *text),
    };
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, json(&serde_json::json!({ "error": text }))).into_response()
}

/// Adds the load of each CPU, where it is known, to a topology.
fn with_load(mut topology: NodeTopology, latest: Option<Frame>) -> NodeTopology {
    let load = latest.map(|frame| frame.node.cpus).unwrap_or_default();
    for cpu in &mut topology.cpus {
        let known = load.iter().find(|known| known.cpu == cpu.cpu);
        cpu.busy = known.and_then(|known| known.busy);
    }
    topology
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::PathBuf;
    use std::time::Duration;

    use api::{AdviceReport, CpuFrame, CpuWithOwner};
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use metrics::{AgentMetrics, Build};
    use timeline::recording::{Origin, encode};
    use timeline::{Timeline, TimelineConfig};

    use super::*;
    use crate::place::Places;
    use crate::sources::{AgentStatus, Sources};
    use crate::ui::{Ui, pages, streams};

    struct NoAgent;

    impl AgentStatus for NoAgent {}

    fn views(recorded: Option<PathBuf>, is_protected: bool) -> Arc<Views> {
        let metrics = AgentMetrics::new(Build { version: "", revision: "" });
        let sources = Sources {
            published: snapshot::Published::default(),
            metrics: Arc::new(metrics),
            advice: Arc::new(AdviceReport::default),
            status: Arc::new(NoAgent),
        };
        let ui = Ui {
            timeline: Timeline::new(TimelineConfig {
                node: String::new(),
                containers: 1,
                pairs: 1,
            }),
            is_replay: false,
            version: "",
            revision: "",
            topology: Box::new(|| anyhow::bail!("none")),
            pins: Box::new(|| anyhow::bail!("none")),
            doctor: Box::new(|| anyhow::bail!("none")),
            origin: Origin::default(),
            recorded,
        };
        Arc::new(Views::new(ui, sources, is_protected))
    }

    #[tokio::test]
    async fn only_clients_on_the_node_or_with_a_token_reach_back_into_the_recording() {
        let frame = |at_ms| Frame { at_ms, seconds: 1.0, ..Frame::default() };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording");
        let file = encode([frame(5_000_000), frame(9_999_000)], &Origin::default()).unwrap();
        std::fs::write(&path, file).unwrap();
        let answer = async |peer: [u8; 4], is_protected: bool, call: &str| {
            let views = views(Some(path.clone()), is_protected);
            [9_999_000, 10_000_000].iter().for_each(|at| views.timeline.add(&frame(*at)));
            let (place, _cut) =
                Places::new(Arc::clone(&views.sources.metrics)).open(Ipv4Addr::from(peer).into());
            let request = Request::get(format!("/api/v1/{call}")).extension(place);
            let routes = TowerToHyperService::new(pages(&views));
            routes.call(request.body(Body::empty()).unwrap()).await.unwrap()
        };
        let status = async |peer: [u8; 4], is_protected: bool, call: &str| {
            answer(peer, is_protected, call).await.status()
        };
        let (on_node, elsewhere) = ([127, 0, 0, 1], [10, 0, 0, 1]);
        for path in ["frame", "pods", "interference", "history", "overview", "recording"] {
            let call = format!("{path}?until=5000000");
            assert_eq!(status(on_node, false, &call).await, StatusCode::OK, "{path}");
            assert_eq!(status(elsewhere, false, &call).await, StatusCode::FORBIDDEN, "{path}");
            assert_eq!(status(elsewhere, true, &call).await, StatusCode::OK, "{path}");
            // What is in memory is for all.
            let call = format!("{path}?until=10000000&seconds=1");
            assert_eq!(status(elsewhere, false, &call).await, StatusCode::OK, "{path}");
        }
        // The page offers what it can get.
        let begin = async |peer: [u8; 4], is_protected: bool| {
            let body = to_bytes(answer(peer, is_protected, "node").await.into_body(), 10_000).await;
            let node: serde_json::Value = serde_json::from_slice(&body.unwrap()).unwrap();
            node["history"]["beginMs"].as_u64().unwrap()
        };
        assert_eq!([begin(on_node, false).await, begin(elsewhere, true).await], [5_000_000; 2]);
        // The first frame in memory is a second long.
        assert_eq!(begin(elsewhere, false).await, 9_998_000);
    }

    #[test]
    fn an_event_stream_ends_with_the_lease_of_its_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let views = views(None, true);
            let (place, _cut) =
                Places::new(Arc::clone(&views.sources.metrics)).open(Ipv4Addr::LOCALHOST.into());
            let lease = Lease::new(|| async { false }).checked_every(Duration::from_millis(1));
            let request = Request::get("/api/v1/stream").extension(place).extension(lease);
            let routes = TowerToHyperService::new(streams(&views));
            let response = routes.call(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            // Without an end, this fails instead of waiting for events that never come.
            let all = to_bytes(response.into_body(), 100);
            let all = tokio::time::timeout(Duration::from_secs(60), all).await;
            assert_eq!(all.expect("an end").unwrap(), ":\n\n");
        });
    }

    #[test]
    fn the_load_is_added_to_its_cpu_and_an_unknown_one_is_absent() {
        let cpu = |cpu, busy| CpuWithOwner { cpu, busy, ..CpuWithOwner::default() };
        let topology = |busy| NodeTopology {
            cpus: vec![cpu(0, None), cpu(2, busy)],
            ..NodeTopology::default()
        };
        let mut frame = Frame::default();
        frame.node.cpus = vec![
            CpuFrame { cpu: 0, ..CpuFrame::default() },
            CpuFrame { cpu: 2, busy: Some(0.5), ..CpuFrame::default() },
        ];
        assert_eq!(with_load(topology(None), Some(frame)), topology(Some(0.5)));
        assert_eq!(with_load(topology(None), None), topology(None));
        let json = serde_json::to_value(topology(None)).unwrap();
        assert!(json["cpus"][0].get("busy").is_none(), "{json}");
    }
}
