//! Responses to requests; rejections use the kubelet's own text (`pkg/kubelet/server`: `auth.go`,
//! `InstallAuthFilter`).

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{self, Request};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::fault::Fault;
use crate::log::Log;
use crate::serve::VerifiedCertificate;
use crate::state::State;

/// Port 10250: tokens, authorization.
pub(crate) fn secure(state: &Arc<State>) -> Router {
    let admitted = routes(state).layer(from_fn_with_state(Arc::clone(state), admit));
    logged(admitted, Arc::clone(&state.log))
}

/// Port 10255: readable without authorization.
pub(crate) fn read_only(state: &Arc<State>) -> Router {
    logged(routes(state), Arc::clone(&state.log))
}

/// Logs each request.
pub(crate) fn logged(app: Router, log: Arc<Log>) -> Router {
    app.layer(from_fn_with_state(log, log_request))
}

async fn log_request(
    extract::State(log): extract::State<Arc<Log>>,
    request: Request,
    next: Next,
) -> Response {
    let number = log.arrived(&request.uri().to_string());
    let response = next.run(request).await;
    log.answered(number, response.status().as_u16());
    response
}

fn routes(state: &Arc<State>) -> Router {
    let configuration = Bytes::from_static(br#"{"kubeletconfig":{"cpuManagerPolicy":"none"}}"#);
    Router::new()
        .route("/pods", any(pods))
        .route("/pods/", any(pods))
        .route("/healthz", any(async || "ok"))
        .route("/configz", any(async || json(configuration)))
        .fallback(not_found)
        .with_state(Arc::clone(state))
}

pub(crate) async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found")
}

async fn admit(
    extract::State(state): extract::State<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    match refuse(&state, &request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

fn refuse(state: &State, request: &Request) -> Option<Response> {
    state.rotate_if_ordered();
    let is_known = bearer(request) == Some(&state.token())
        || request.extensions().get::<VerifiedCertificate>().is_some();
    if !is_known {
        return Some(plain(StatusCode::UNAUTHORIZED, "Unauthorized"));
    }
    let wanted = subresources(request.uri().path(), state.fine_grained.load(Ordering::Relaxed));
    let grants = state.grants.load();
    if wanted.iter().any(|name| grants.iter().any(|grant| grant.0 == *name)) {
        return None;
    }
    let text = format!(
        "Forbidden (user=system:serviceaccount:kube-system:cpuwarden, verb=get, resource=nodes, subresource(s)=[{}])\n",
        wanted.join(" ")
    );
    Some(plain(StatusCode::FORBIDDEN, text))
}

/// The token of a request.
pub(crate) fn bearer(request: &Request) -> Option<&str> {
    request.headers().get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// The subresources of `nodes` that grant access to a path; any one of them is enough.
fn subresources(path: &str, fine_grained: bool) -> Vec<&'static str> {
    let fine = ["pods", "healthz", "configz"]
        .into_iter()
        .find(|name| path[1..].split('/').next() == Some(name));
    fine.filter(|_| fine_grained).into_iter().chain(["proxy"]).collect()
}

async fn pods(extract::State(state): extract::State<Arc<State>>) -> Response {
    let pods = Bytes::clone(&state.pods.load());
    match **state.fault.load() {
        None => json(pods),
        Some(Fault::Hang) => pending().await,
        Some(Fault::Status(code)) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            plain(status, status.canonical_reason().unwrap_or("fault"))
        }
        Some(Fault::Garbage) => json(Bytes::from_static(b"\x16\x03\x01 this is not JSON")),
        Some(Fault::NotAList) => {
            json(Bytes::from_static(br#"{"kind":"Status","status":"Failure"}"#))
        }
        Some(Fault::CutBody) => json(pods.slice(..pods.len() / 2)),
        Some(Fault::HalfBody) => {
            let half = Ok(pods.slice(..pods.len() / 2));
            streamed(stream::iter([half, Err(io::Error::other("ordered fault"))]))
        }
        Some(Fault::Slow { pieces, pause }) => slow(&pods, pieces, pause),
        Some(Fault::Endless) => {
            let begin = stream::iter([Ok(Bytes::from_static(b"{\"items\":["))]);
            streamed(begin.chain(stream::repeat_with(|| Ok(Bytes::from_static(&[b' '; 1 << 16])))))
        }
    }
}

fn slow(pods: &Bytes, pieces: usize, pause: Duration) -> Response {
    let size = pods.len().div_ceil(pieces.max(1)).max(1);
    let chunks: Vec<Bytes> =
        (0..pods.len()).step_by(size).map(|at| pods.slice(at..pods.len().min(at + size))).collect();
    streamed(stream::iter(chunks).then(move |chunk| async move {
        tokio::time::sleep(pause).await;
        Ok(chunk)
    }))
}

pub(crate) fn json(body: impl Into<Body>) -> Response {
    json_with(StatusCode::OK, body)
}

pub(crate) fn json_with(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

pub(crate) fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}

pub(crate) fn streamed(
    chunks: impl stream::Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response {
    json(Body::from_stream(chunks))
}
