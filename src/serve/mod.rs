//! The endpoint: /metrics, /api/v1/advice, /healthz, /readyz, and /metrics/cadvisor where asked for. A request reads the
//! latest snapshot and never touches the kernel.

mod auth;
mod door;
pub(crate) mod page;
mod tls;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use metrics::Format;
use metrics::exposition::accepts_gzip;
use pods::Pods;
use sampler::Published;
use tokio::sync::oneshot;

use crate::advise::Advisor;
use crate::watchdog::Watchdog;
pub(crate) use auth::Auth;
pub(crate) use door::Door;
use page::{Page, Subject};
pub(crate) use tls::TlsListener;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct State {
    published: Published,
    pods: Pods,
    page: Arc<Page>,
    advisor: Advisor,
    watchdog: Watchdog,
}

impl State {
    pub(crate) fn new(published: Published, pods: Pods, page: Page, advisor: Advisor, watchdog: Watchdog) -> Self {
        Self { published, pods, page: Arc::new(page), advisor, watchdog }
    }
}

/// What is served, and to whom.
pub(crate) struct Access {
    /// /metrics/cadvisor too.
    pub(crate) cadvisor: bool,
    /// Who says who may read the metrics; `None` where everybody may.
    pub(crate) auth: Option<Arc<Auth>>,
}

/// Serves until `stop` is sent or dropped, then lets open requests end.
pub(crate) async fn serve<L>(listener: L, state: State, access: Access, stop: oneshot::Receiver<()>)
where
    L: Listener<Addr: std::fmt::Debug>,
{
    let router = Router::new()
        .route("/", get(index))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .merge(pages(access))
        .with_state(state);
    let stopped = async {
        let _ = stop.await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the endpoint ended");
    }
}

/// The pages that tell of pods, behind a guard where there is one.
fn pages(Access { cadvisor, auth }: Access) -> Router<State> {
    let mut pages = Router::new().route("/metrics", get(metrics)).route("/api/v1/advice", get(advice));
    if cadvisor {
        pages = pages.route("/metrics/cadvisor", get(cadvisor_metrics));
    }
    match auth {
        Some(auth) => pages.route_layer(from_fn_with_state(auth, auth::check)),
        None => pages,
    }
}

async fn index() -> &'static str {
    "cpuwarden: /metrics (Prometheus text or OpenMetrics), /api/v1/advice (JSON), /healthz (the process), /readyz (sampled, pods known)\n"
}

async fn metrics(axum::extract::State(state): axum::extract::State<State>, headers: HeaderMap) -> Response {
    page(&state, Subject::Agent, &headers)
}

async fn cadvisor_metrics(axum::extract::State(state): axum::extract::State<State>, headers: HeaderMap) -> Response {
    page(&state, Subject::Cadvisor, &headers)
}

fn page(state: &State, subject: Subject, headers: &HeaderMap) -> Response {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::from_accept(text(header::ACCEPT));
    let gzip = accepts_gzip(text(header::ACCEPT_ENCODING));
    let body = state.page.render(subject, format, gzip);
    let mut response = ([(header::CONTENT_TYPE, format.content_type())], body).into_response();
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    }
    response
}

async fn advice(axum::extract::State(state): axum::extract::State<State>) -> Response {
    // The advisor may be looking into a process, and everything else is served by this thread.
    let told = tokio::task::spawn_blocking(move || serde_json::to_vec(&state.advisor.advice()));
    match told.await.map_err(anyhow::Error::from).and_then(|body| Ok(body?)) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(axum::extract::State(state): axum::extract::State<State>) -> (StatusCode, String) {
    let silent = state.watchdog.silent();
    if silent.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, silent.iter().map(|part| format!("{part}\n")).collect())
}

async fn readyz(axum::extract::State(state): axum::extract::State<State>) -> (StatusCode, String) {
    if state.published.latest().sequence == 0 {
        return (StatusCode::SERVICE_UNAVAILABLE, "no sample taken yet\n".to_owned());
    }
    if !state.pods.is_known() {
        let errors = state.pods.status().into_iter().filter_map(|status| status.error);
        let why: Vec<String> = errors.collect();
        return (StatusCode::SERVICE_UNAVAILABLE, format!("pods not known yet: {}\n", why.join("; ")));
    }
    (StatusCode::OK, "ready\n".to_owned())
}
