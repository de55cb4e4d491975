//! The files of the page, embedded in the binary, and the description of the API.

use axum::body::Bytes;
use axum::extract::{Extension, Path};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::place::Place;

/// Files of the page by name, with their type.
const FILES: &[(&str, &str, &[u8])] = &[
    ("page.css", "text/css; charset=utf-8", include_bytes!("../../assets/page.css")),
    ("advice.js", SCRIPT, include_bytes!("../../assets/advice.js")),
    ("data.js", SCRIPT, include_bytes!("../../assets/data.js")),
    ("draw.js", SCRIPT, include_bytes!("../../assets/draw.js")),
    ("pods.js", SCRIPT, include_bytes!("../../assets/pods.js")),
    ("detail.js", SCRIPT, include_bytes!("../../assets/detail.js")),
    ("node.js", SCRIPT, include_bytes!("../../assets/node.js")),
    ("time.js", SCRIPT, include_bytes!("../../assets/time.js")),
    ("page.js", SCRIPT, include_bytes!("../../assets/page.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";
const INDEX: &[u8] = include_bytes!("../../assets/index.html");
const OPENAPI: &[u8] = include_bytes!("../../assets/openapi.json");

/// Text at `/` for clients that do not read HTML.
const TEXT: &str = "cpuwarden: / (page for a browser), /metrics (Prometheus text or OpenMetrics), \
    /api/v1/openapi.json (description of the JSON API), /healthz (every part works), /readyz \
    (first sample taken, pods known)\n";

/// The page loads only its own files and sends requests only to its origin. Nothing is inline, so
/// that text that became markup by mistake could not run either.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`.
pub(super) async fn index(Extension(place): Extension<Place>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let vary = [(header::VARY, "Accept")];
    if accepts.is_some_and(|accepts| accepts.contains("text/html")) {
        return (vary, asset("text/html; charset=utf-8", INDEX, &place)).into_response();
    }
    (vary, TEXT).into_response()
}

/// `GET /ui/{file}`.
pub(super) async fn file(Extension(place): Extension<Place>, Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, kind, content)) => asset(kind, content, &place),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn openapi(Extension(place): Extension<Place>) -> Response {
    asset("application/json", OPENAPI, &place)
}

fn asset(kind: &'static str, content: &'static [u8], place: &Place) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the agent may answer after an update.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, place.body(Bytes::from_static(content))).into_response()
}
