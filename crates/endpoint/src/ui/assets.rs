//! The files of the page, embedded in the binary, and the description of the API.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::extract::{Extension, Path};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;

use super::json::{gzip, reads_gzip};
use crate::place::Place;

/// A file of the page.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static [u8],
    /// The content as gzip, once a client has accepted it; `None` if it is too small.
    compressed: OnceLock<Option<Bytes>>,
}

static FILES: [Asset; 10] = [
    Asset::new("page.css", "text/css; charset=utf-8", include_bytes!("../../assets/page.css")),
    Asset::new("advice.js", SCRIPT, include_bytes!("../../assets/advice.js")),
    Asset::new("data.js", SCRIPT, include_bytes!("../../assets/data.js")),
    Asset::new("draw.js", SCRIPT, include_bytes!("../../assets/draw.js")),
    Asset::new("pods.js", SCRIPT, include_bytes!("../../assets/pods.js")),
    Asset::new("detail.js", SCRIPT, include_bytes!("../../assets/detail.js")),
    Asset::new("node.js", SCRIPT, include_bytes!("../../assets/node.js")),
    Asset::new("time.js", SCRIPT, include_bytes!("../../assets/time.js")),
    Asset::new("page.js", SCRIPT, include_bytes!("../../assets/page.js")),
    Asset::new("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";
static INDEX: Asset =
    Asset::new("index.html", "text/html; charset=utf-8", include_bytes!("../../assets/index.html"));
static OPENAPI: Asset =
    Asset::new("openapi.json", "application/json", include_bytes!("../../assets/openapi.json"));

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
    if accepts.is_some_and(|accepts| accepts.contains("text/html")) {
        let vary = [(header::VARY, "Accept, Accept-Encoding")];
        return (vary, INDEX.response(&headers, &place)).into_response();
    }
    ([(header::VARY, "Accept")], TEXT).into_response()
}

/// `GET /ui/{file}`.
pub(super) async fn file(
    Extension(place): Extension<Place>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.response(&headers, &place),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn openapi(Extension(place): Extension<Place>, headers: HeaderMap) -> Response {
    OPENAPI.response(&headers, &place)
}

impl Asset {
    const fn new(name: &'static str, kind: &'static str, content: &'static [u8]) -> Self {
        Self { name, kind, content, compressed: OnceLock::new() }
    }

    fn response(&'static self, headers: &HeaderMap, place: &Place) -> Response {
        let compressed = match reads_gzip(headers) {
            true => self.compressed.get_or_init(|| gzip(self.content, Compression::best())).clone(),
            false => None,
        };
        let is_gzip = compressed.is_some();
        let content = compressed.unwrap_or(Bytes::from_static(self.content));
        let headers = [
            (header::CONTENT_TYPE, self.kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // Another version of the agent may answer after an update.
            (header::CACHE_CONTROL, "no-cache"),
            (header::VARY, "Accept-Encoding"),
        ];
        let encoding = is_gzip.then_some([(header::CONTENT_ENCODING, "gzip")]);
        (headers, encoding, place.body(content)).into_response()
    }
}
