//! The routes: probes, metrics, advice, and the page with its JSON API.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics::Format;
use metrics::exposition::accepts_gzip;
use snapshot::NodeSnapshot;

use crate::auth::{self, Auth};
use crate::browsers::{self, Browsers};
use crate::page::{PageKind, Pages, failed};
use crate::place::{self, Place};
use crate::sources::{Readiness, Sources};
use crate::ui::{self, Views};

/// Optional pages and access control.
pub(crate) struct Access {
    /// Whether to serve /metrics/cadvisor.
    pub(crate) cadvisor: bool,
    /// Reviewer of access to the metrics; `None` allows everyone.
    pub(crate) auth: Option<Arc<Auth>>,
    /// Rules for requests of browsers, except for the metrics and the probes.
    pub(crate) browsers: Browsers,
}

/// All routes. The probes use the places of waiting connections and are open to everyone.
pub(crate) fn router(
    sources: Sources,
    pages: Pages,
    access: &Access,
    views: Option<Arc<Views>>,
) -> Router {
    let probes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(sources);
    let mut exposition = Router::new().route("/metrics", get(metrics));
    if access.cadvisor {
        exposition = exposition.route("/metrics/cadvisor", get(cadvisor_metrics));
    }
    let pages = Arc::new(pages);
    let exposition = exposition.with_state(Arc::clone(&pages));
    let advice = Router::new().route("/api/v1/advice", get(advice)).with_state(pages);
    let (views, streams) = match views {
        Some(views) => (advice.merge(ui::pages(&views)), ui::streams(&views)),
        None => (advice.route("/", get(index)), Router::new()),
    };
    // The layer added last runs first.
    let pages = exposition.merge(access.for_browsers(views));
    let pages = access.guarded(pages).route_layer(from_fn(place::admit));
    if !streams.has_routes() {
        return pages.merge(probes);
    }
    let streams =
        access.guarded(access.for_browsers(streams)).route_layer(from_fn(place::admit_stream));
    pages.merge(streams).merge(probes)
}

impl Access {
    /// Routes that a browser shows, behind the rules for browsers.
    fn for_browsers(&self, routes: Router) -> Router {
        routes.route_layer(from_fn_with_state(self.browsers.clone(), browsers::check))
    }

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

async fn healthz(State(sources): State<Sources>) -> Response {
    let faults = sources.status.faults();
    if faults.is_empty() {
        return probe(StatusCode::OK, "ok\n".to_owned());
    }
    probe(StatusCode::SERVICE_UNAVAILABLE, faults.iter().map(|part| format!("{part}\n")).collect())
}

async fn readyz(State(sources): State<Sources>) -> Response {
    let latest = sources.published.latest();
    if latest.sequence == 0 {
        return probe(StatusCode::SERVICE_UNAVAILABLE, "no sample taken yet\n".to_owned());
    }
    // Unauthenticated clients get no addresses and no errors about tokens: those are in the log.
    match sources.status.readiness() {
        Readiness::Unnamed { remedy } => {
            probe(StatusCode::OK, format!("ready, but pods have no names: {remedy}\n"))
        }
        Readiness::Ready => probe(StatusCode::OK, format!("ready\n{}", without_cgroup(&latest))),
        Readiness::Waiting => {
            probe(StatusCode::SERVICE_UNAVAILABLE, "pod list not available yet\n".to_owned())
        }
    }
}

/// A line about containers without a cgroup. The probe stays successful: a restart of the agent
/// would not find them.
fn without_cgroup(latest: &NodeSnapshot) -> String {
    let all = latest.missing.iter().flat_map(|missing| missing.iter());
    match all.filter(|row| row.sandboxed_by.is_none()).count() {
        0 => String::new(),
        1 => "1 running container has no cgroup and is not measured: cpuwarden doctor names it\n"
            .to_owned(),
        count => format!(
            "{count} running containers have no cgroup and are not measured: cpuwarden doctor names \
             them\n"
        ),
    }
}

/// Closes the connection after a probe, to free its place for the next one.
fn probe(status: StatusCode, text: String) -> Response {
    (status, [(header::CONNECTION, "close")], text).into_response()
}
