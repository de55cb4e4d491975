//! Handlers of the JSON API.

use std::sync::Arc;

use api::{Frame, KEPT, Measure, NodeTopology, PodsAnswer};
use axum::body::Bytes;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use timeline::Selection;

use super::alone::Alone;
use super::answers;
use super::json::json;
use super::parameters::Parameters;
use super::views::Views;
use crate::auth::Lease;
use crate::page::failed;
use crate::place::Place;

/// Values of `seconds` if the request has none.
const POD_SECONDS: u64 = 300;
const HISTORY_SECONDS: u64 = 60;
const INTERFERENCE_SECONDS: u64 = 300;
/// Maximum number of values in an answer of the history: a few megabytes of JSON.
const MAX_VALUES: usize = 500_000;

/// Reason for an answer without data.
enum Rejection {
    /// 400: a wrong parameter.
    Parameter(String),
    /// 403: not for this client.
    Forbidden(&'static str),
    /// 404: no such pod.
    NotFound(String),
    /// 503: no data yet, or not readable.
    Unavailable(&'static str),
}

type Answer = Result<Bytes, Rejection>;
/// Common arguments of the handlers.
type Call = (State<Arc<Views>>, Extension<Place>, RawQuery);

/// `GET /api/v1/node`.
pub(super) async fn node(call: Call) -> Response {
    answer(call, &[], 0, |views, _| Ok(json(&answers::node(views, latest(views)?)))).await
}

/// `GET /api/v1/pods`.
pub(super) async fn pods(call: Call) -> Response {
    answer(call, &[], 0, |views, _| Ok(json(&PodsAnswer::from(latest(views)?)))).await
}

/// `GET /api/v1/pods/{uid}`.
pub(super) async fn pod(Path(uid): Path<String>, call: Call) -> Response {
    answer(call, &["seconds"], POD_SECONDS, move |views, parameters| {
        let pod = answers::pod(views, &latest(views)?, &uid, parameters.span);
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
    answer(call, &["seconds"], INTERFERENCE_SECONDS, |views, parameters| {
        Ok(json(&views.timeline.aggressors(parameters.span)))
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
    let (State(views), Extension(place), _) = &call;
    // Findings contain paths and addresses, and gathering them costs CPU time.
    if !views.is_protected && !place.peer.is_loopback() {
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
    let saving = call.0.saving.clone();
    let mut response =
        answer_alone(saving, call, &["seconds"], KEPT as u64, |views, parameters| {
            // Fails with the reason if there is nothing to record yet.
            latest(views)?;
            let bytes = (views.recording)(parameters.span);
            bytes.map(Bytes::from).map_err(|error| unreadable("recording", &error))
        })
        .await;
    if response.status().is_success() {
        let binary = header::HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, binary);
    }
    response
}

/// `GET /api/v1/frame`.
pub(super) async fn frame(call: Call) -> Response {
    answer(call, &[], 0, |views, _| Ok(json(&latest(views)?))).await
}

/// `GET /api/v1/history`.
pub(super) async fn history(call: Call) -> Response {
    answer(call, &["seconds", "uid", "measure", "aggressors"], HISTORY_SECONDS, points).await
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
    let Parameters { span, uids, measures, aggressors } = parameters;
    let measures = if measures.is_empty() { &Measure::ALL[..] } else { measures };
    let is_selected = |uid: &str| uids.is_empty() || uids.iter().any(|selected| selected == uid);
    let frame = latest(views)?;
    let rows = frame.containers.iter().filter(|row| is_selected(&row.uid)).count();
    let frames = usize::try_from(span.as_secs()).unwrap_or(KEPT).min(KEPT);
    // A pod has at least one container.
    let values = rows * (measures.len() + aggressors) * frames;
    if values > MAX_VALUES {
        return Err(Rejection::Parameter(format!(
            "{values} values are too many, at most {MAX_VALUES}: name pods with uid, name \
             measures, or ask for fewer seconds or aggressors"
        )));
    }
    let selection = Selection { measures, aggressors: *aggressors, span: *span };
    Ok(json(&views.timeline.points(|row| is_selected(&row.uid), &selection)))
}

/// Parses the parameters, and computes the answer on the rendering thread: this one answers the
/// probes.
async fn answer(
    (State(views), Extension(place), query): Call,
    known: &[&str],
    seconds: u64,
    compute: impl FnOnce(&Views, &Parameters) -> Answer + Send + 'static,
) -> Response {
    let parameters = match parameters(&query, known, seconds) {
        Ok(parameters) => parameters,
        Err(rejection) => return rejection_response(&rejection),
    };
    let computed = tokio::task::spawn_blocking(move || compute(&views, &parameters)).await;
    response(&place, computed.map_err(Into::into))
}

/// As [`answer`], on a thread of its own, for what may take seconds.
async fn answer_alone(
    alone: Alone,
    (State(views), Extension(place), query): Call,
    known: &[&str],
    seconds: u64,
    compute: impl FnOnce(&Views, &Parameters) -> Answer + Send + 'static,
) -> Response {
    let parameters = match parameters(&query, known, seconds) {
        Ok(parameters) => parameters,
        Err(rejection) => return rejection_response(&rejection),
    };
    let computed = alone.run(move || compute(&views, &parameters)).await;
    response(&place, computed)
}

fn parameters(
    RawQuery(query): &RawQuery,
    known: &[&str],
    seconds: u64,
) -> Result<Parameters, Rejection> {
    Parameters::parse(query.as_deref().unwrap_or_default(), known, seconds)
        .map_err(Rejection::Parameter)
}

fn response(place: &Place, computed: anyhow::Result<Answer>) -> Response {
    match computed {
        Ok(Ok(answer)) => {
            let headers = [
                (header::CONTENT_TYPE, "application/json"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, place.body(answer)).into_response()
        }
        Ok(Err(rejection)) => rejection_response(&rejection),
        Err(error) => failed(&error),
    }
}

fn latest(views: &Views) -> Result<Frame, Rejection> {
    let none = "no data yet: the first second has not ended; try again in a second";
    views.timeline.latest().ok_or(Rejection::Unavailable(none))
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
    use std::time::Duration;

    use api::{AdviceReport, CpuFrame, CpuWithOwner};
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use metrics::{AgentMetrics, Build};
    use timeline::{Timeline, TimelineConfig};

    use super::*;
    use crate::place::Places;
    use crate::sources::{AgentStatus, Sources};
    use crate::ui::{Ui, streams};

    struct NoAgent;

    impl AgentStatus for NoAgent {}

    fn views() -> Arc<Views> {
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
            recording: Box::new(|_| anyhow::bail!("none")),
        };
        Arc::new(Views::new(ui, sources, true))
    }

    #[test]
    fn an_event_stream_ends_with_the_lease_of_its_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let views = views();
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
