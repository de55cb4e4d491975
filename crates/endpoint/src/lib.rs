//! The endpoint: /metrics, /api/v1/advice, /healthz, /readyz, and optionally /metrics/cadvisor, the
//! page and the JSON API. A request reads the latest snapshot or the history and does not touch the
//! kernel, except for pins and topology, which are read at most once in a few seconds, and for the
//! doctor, on a thread of its own at most once a minute.
//!
//! [`listen`] opens the port; [`Serving`] serves it on a thread of its own.

mod auth;
mod connections;
mod page;
mod server;
mod tls;
mod ui;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics::Format;
use metrics::exposition::accepts_gzip;

pub use auth::Auth;
pub use page::Sources;
pub use server::{ListenError, Parts, Serving, listen};
pub use tls::{Identity, TlsFiles, UnusableFile};
pub use ui::{Recording, Ui, View};

use page::{PageKind, Pages};
use server::Place;
use ui::Views;

/// Optional pages and access control.
struct Access {
    /// Whether to serve /metrics/cadvisor.
    cadvisor: bool,
    /// Reviewer of access to the metrics; `None` allows everyone.
    auth: Option<Arc<Auth>>,
}

/// All routes. The probes use the places of waiting connections and are open to everyone.
fn router(sources: Sources, pages: Pages, access: &Access, views: Option<Arc<Views>>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(sources);
    let mut texts = Router::new().route("/metrics", get(metrics));
    texts = texts.route("/api/v1/advice", get(advice));
    if access.cadvisor {
        texts = texts.route("/metrics/cadvisor", get(cadvisor_metrics));
    }
    let texts = texts.with_state(Arc::new(pages));
    let (pages, streams) = match views {
        Some(views) => (texts.merge(ui::pages(&views)), ui::streams(&views)),
        None => (texts.route("/", get(index)), Router::new()),
    };
    // The layer added last runs first.
    let pages = access.guarded(pages).route_layer(from_fn(server::admit));
    if !streams.has_routes() {
        return pages.merge(probes);
    }
    let streams = access.guarded(streams).route_layer(from_fn(server::admit_stream));
    pages.merge(streams).merge(probes)
}

impl Access {
    /// The routes behind the review of tokens, if it is enabled.
    fn guarded(&self, routes: Router) -> Router {
        match &self.auth {
            Some(auth) => routes.route_layer(from_fn_with_state(Arc::clone(auth), auth::check)),
            None => routes,
        }
    }
}

async fn index() -> &'static str {
    INDEX
}

/// Text at `/` for clients that do not read HTML.
const INDEX: &str = "cpuwarden: /metrics (Prometheus text or OpenMetrics), /api/v1/advice (JSON), \
    /healthz (every part works), /readyz (first sample taken, pods known)\n";

async fn metrics(
    State(pages): State<Arc<Pages>>,
    Extension(place): Extension<Place>,
    headers: HeaderMap,
) -> Response {
    page(&pages, PageKind::Agent, &place, &headers).await
}

async fn cadvisor_metrics(
    State(pages): State<Arc<Pages>>,
    Extension(place): Extension<Place>,
    headers: HeaderMap,
) -> Response {
    page(&pages, PageKind::Cadvisor, &place, &headers).await
}

async fn page(pages: &Pages, kind: PageKind, place: &Place, headers: &HeaderMap) -> Response {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::from_accept(text(header::ACCEPT));
    let gzip = accepts_gzip(text(header::ACCEPT_ENCODING));
    let page = match pages.get(kind, format, gzip).await {
        Ok(page) => page,
        Err(error) => return failed(&error),
    };
    let mut response =
        ([(header::CONTENT_TYPE, format.content_type())], place.body(page)).into_response();
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

async fn advice(State(pages): State<Arc<Pages>>, Extension(place): Extension<Place>) -> Response {
    match pages.get(PageKind::Advice, Format::Text, false).await {
        Ok(page) => {
            ([(header::CONTENT_TYPE, "application/json")], place.body(page)).into_response()
        }
        Err(error) => failed(&error),
    }
}

/// Details of the failure go to the log, not to the client.
fn failed(error: &anyhow::Error) -> Response {
    tracing::error!(error = format!("{error:#}"), "a page could not be rendered");
    (StatusCode::INTERNAL_SERVER_ERROR, "the page could not be rendered\n").into_response()
}

async fn healthz(State(sources): State<Sources>) -> Response {
    let silent = sources.watchdog.silent();
    if silent.is_empty() {
        return probe(StatusCode::OK, "ok\n".to_owned());
    }
    probe(StatusCode::SERVICE_UNAVAILABLE, silent.iter().map(|part| format!("{part}\n")).collect())
}

async fn readyz(State(sources): State<Sources>) -> Response {
    if sources.published.latest().sequence == 0 {
        return probe(StatusCode::SERVICE_UNAVAILABLE, "no sample taken yet\n".to_owned());
    }
    // Unauthenticated clients get no addresses and no errors about tokens: those are in the log.
    match sources.pods.names_missing() {
        Some(cause) => {
            probe(StatusCode::OK, format!("ready, but pods have no names: {}\n", cause.remedy()))
        }
        None if sources.pods.is_known() => probe(StatusCode::OK, "ready\n".to_owned()),
        None => probe(StatusCode::SERVICE_UNAVAILABLE, "pod list not available yet\n".to_owned()),
    }
}

/// Closes the connection after a probe, to free its place for the next one.
fn probe(status: StatusCode, text: String) -> Response {
    (status, [(header::CONNECTION, "close")], text).into_response()
}
