//! The endpoint: /metrics, /healthz, /readyz. A request reads the latest snapshot and never touches the kernel.

mod page;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics::exposition::accepts_gzip;
use metrics::{AgentMetrics, Format};
use pods::Pods;
use sampler::Published;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use page::Page;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct State {
    published: Published,
    pods: Pods,
    page: Arc<Page>,
}

impl State {
    pub(crate) fn new(published: Published, pods: Pods, metrics: Arc<AgentMetrics>, max_series: usize) -> Self {
        let page = Arc::new(Page::new(published.clone(), pods.clone(), metrics, max_series));
        Self { published, pods, page }
    }
}

/// Serves until `stop` is sent or dropped, then lets open requests end.
pub(crate) async fn serve(listener: TcpListener, state: State, stop: oneshot::Receiver<()>) {
    let router = Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(state);
    let stopped = async {
        let _ = stop.await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the endpoint ended");
    }
}

async fn index() -> &'static str {
    "cpuwarden: /metrics (Prometheus text or OpenMetrics), /healthz (the process), /readyz (sampled, pods known)\n"
}

async fn metrics(axum::extract::State(state): axum::extract::State<State>, headers: HeaderMap) -> Response {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::from_accept(text(header::ACCEPT));
    let gzip = accepts_gzip(text(header::ACCEPT_ENCODING));
    let body = state.page.render(format, gzip);
    let mut response = ([(header::CONTENT_TYPE, format.content_type())], body).into_response();
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    }
    response
}

async fn healthz() -> &'static str {
    "ok\n"
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
