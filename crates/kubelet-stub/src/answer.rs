//! Responses to requests; rejections use the kubelet's own text (`pkg/kubelet/server`: `auth.go`,
//! `InstallAuthFilter`).

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Response, StatusCode};
use rustls::ServerConfig;

use crate::fault::Fault;
use crate::serve::{Body, Peer, VerifiedCertificate};
use crate::state::KubeletState;

/// Port 10250: TLS, tokens, authorization.
#[derive(Debug)]
pub(crate) struct Secure(pub(crate) Arc<KubeletState>);

/// Port 10255: readable without authorization.
#[derive(Debug)]
pub(crate) struct ReadOnly(pub(crate) Arc<KubeletState>);

impl Peer for Secure {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        Some(self.0.tls.load_full())
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let refusal = refuse(&self.0, &request);
        answer(&self.0, &request, refusal).await
    }
}

impl Peer for ReadOnly {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        answer(&self.0, &request, None).await
    }
}

async fn answer(
    state: &KubeletState,
    request: &Request<Incoming>,
    refusal: Option<Response<Body>>,
) -> Response<Body> {
    let number = state.log.arrived(&request.uri().to_string());
    let response = match refusal {
        Some(refusal) => refusal,
        None => route(state, request.uri().path()).await,
    };
    state.log.answered(number, response.status().as_u16());
    response
}

async fn route(state: &KubeletState, path: &str) -> Response<Body> {
    match path {
        "/pods" | "/pods/" => pods(state).await,
        "/healthz" => plain(StatusCode::OK, "ok"),
        "/configz" => json(Bytes::from_static(br#"{"kubeletconfig":{"cpuManagerPolicy":"none"}}"#)),
        _ => plain(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn refuse(state: &KubeletState, request: &Request<Incoming>) -> Option<Response<Body>> {
    state.rotate_if_ordered();
    let token = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let is_known = token == Some(&state.token())
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
    Some(plain(StatusCode::FORBIDDEN, &text))
}

/// The subresources of `nodes` that grant access to a path; any one of them is enough.
fn subresources(path: &str, fine_grained: bool) -> Vec<&'static str> {
    let fine = ["pods", "healthz", "configz"]
        .into_iter()
        .find(|name| path[1..].split('/').next() == Some(name));
    fine.filter(|_| fine_grained).into_iter().chain(["proxy"]).collect()
}

async fn pods(state: &KubeletState) -> Response<Body> {
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

fn slow(pods: &Bytes, pieces: usize, pause: Duration) -> Response<Body> {
    let size = pods.len().div_ceil(pieces.max(1)).max(1);
    let chunks: Vec<Bytes> =
        (0..pods.len()).step_by(size).map(|at| pods.slice(at..pods.len().min(at + size))).collect();
    streamed(stream::iter(chunks).then(move |chunk| async move {
        tokio::time::sleep(pause).await;
        Ok(chunk)
    }))
}

pub(crate) fn json(body: Bytes) -> Response<Body> {
    json_with(StatusCode::OK, body)
}

pub(crate) fn json_with(status: StatusCode, body: Bytes) -> Response<Body> {
    respond(
        status,
        "application/json",
        Full::new(body).map_err(|never| match never {}).boxed_unsync(),
    )
}

pub(crate) fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    respond(
        status,
        "text/plain; charset=utf-8",
        body.map_err(|never| match never {}).boxed_unsync(),
    )
}

pub(crate) fn streamed(
    chunks: impl stream::Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    let body = StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data)));
    respond(StatusCode::OK, "application/json", body.boxed_unsync())
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}
