//! An API server for tests that implements the parts of list and watch of pods where a client can
//! go wrong: resource versions, bookmarks, 410 Gone, 429 with Retry-After, watches that end. The
//! test sets the pods; selectors are only logged, not evaluated. It also reviews tokens and access,
//! and accepts events and patches of a node's status.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body_util::{BodyExt as _, Collected};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::answer::{json as json_body, plain, streamed};
use crate::events::{EventStore, failure};
use crate::log::Log;
use crate::pki::{Authority, CertificateKind};
use crate::reviews::TokenHolders;
use crate::serve::{Body, Peer, Port};
use crate::{StubError, replace};

const TOKEN: &str = "apiserver-stub-token";

/// A running API server, stopped on drop.
#[derive(Debug)]
pub struct ApiServerStub {
    state: Arc<ApiServerState>,
    port: Port<ApiServer>,
    directory: PathBuf,
    _stop: DropGuard,
}

#[derive(Debug)]
struct ApiServerState {
    tls: Arc<ServerConfig>,
    log: Log,
    cluster: Mutex<Cluster>,
}

#[derive(Debug, Default)]
struct Cluster {
    version: u64,
    /// Pods by UID, with the resource version inside.
    pods: BTreeMap<String, Value>,
    watches: Vec<mpsc::UnboundedSender<Value>>,
    /// Events with the resulting versions, for watches that start at an older version.
    history: Vec<(u64, Value)>,
    /// Oldest version that a watch can start from.
    oldest: u64,
    /// Number of further requests to answer with 429, and their Retry-After in seconds.
    throttle: (usize, u32),
    /// Number of further watches that begin with 410.
    gone: usize,
    readers: TokenHolders,
    events: EventStore,
    /// Accepted patches of the status of nodes.
    node_patches: Vec<Value>,
    are_node_patches_forbidden: bool,
}

impl ApiServerStub {
    /// Starts on a free loopback port and writes `apiserver-ca.crt` and `apiserver-token` to
    /// `directory`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the port cannot be opened or a file cannot be written.
    pub async fn start(directory: &Path) -> Result<Self, StubError> {
        let authority = Authority::new("127.0.0.1")?;
        let tls = authority.issue(CertificateKind::Valid)?;
        let cluster = Mutex::new(Cluster { version: 100, ..Cluster::default() });
        let state = Arc::new(ApiServerState { tls: tls.tls, log: Log::default(), cluster });
        let stop = CancellationToken::new();
        let port = Port::open(ApiServer(Arc::clone(&state)), stop.clone()).await?;
        let stub = Self { state, port, directory: directory.to_owned(), _stop: stop.drop_guard() };
        replace(&stub.ca_file(), authority.pem().as_bytes())?;
        replace(&stub.token_file(), TOKEN.as_bytes())?;
        Ok(stub)
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.port.address())
    }

    /// Path of its CA's PEM file.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.join("apiserver-ca.crt")
    }

    /// Path of the file with the accepted token.
    pub fn token_file(&self) -> PathBuf {
        self.directory.join("apiserver-token")
    }

    /// Paths with queries of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.log.list().into_iter().map(|request| request.path).collect()
    }

    /// Waits until this number of requests has arrived since the start.
    pub async fn arrived(&self, count: usize) {
        self.state.log.wait_for_requests(count).await;
    }

    /// Adds or replaces a pod, an API object as JSON, and notifies the watches.
    ///
    /// # Panics
    /// If the pod has no UID.
    pub fn apply(&self, mut pod: Value) {
        let mut cluster = self.cluster();
        let version = cluster.next_version();
        pod["metadata"]["resourceVersion"] = version.into();
        let uid = pod["metadata"]["uid"].as_str().expect("a pod with a UID").to_owned();
        let known = cluster.pods.insert(uid, pod.clone()).is_some();
        cluster.notify(if known { "MODIFIED" } else { "ADDED" }, &pod);
    }

    /// Registers a token with its user and the paths that this user may get.
    pub fn admit(&self, token: &str, user: &str, paths: &[&str]) {
        self.cluster().readers.insert(token, user, paths);
    }

    /// The events created so far, oldest first.
    pub fn events(&self) -> Vec<Value> {
        self.cluster().events.list()
    }

    /// Forbids or allows the account to create events: 403.
    pub fn forbid_events(&self, forbidden: bool) {
        self.cluster().events.forbidden = forbidden;
    }

    /// Deletes all events, as the API server does with each after an hour.
    pub fn expire_events(&self) {
        self.cluster().events.forget();
    }

    /// The accepted strategic merge patches of the status of nodes, oldest first.
    pub fn node_patches(&self) -> Vec<Value> {
        self.cluster().node_patches.clone()
    }

    /// Forbids or allows the account to patch the status of nodes: 403.
    pub fn forbid_node_patches(&self, forbidden: bool) {
        self.cluster().are_node_patches_forbidden = forbidden;
    }

    /// Removes a pod and notifies the watches.
    pub fn delete(&self, uid: &str) {
        let mut cluster = self.cluster();
        let Some(mut pod) = cluster.pods.remove(uid) else { return };
        pod["metadata"]["resourceVersion"] = cluster.next_version().into();
        cluster.notify("DELETED", &pod);
    }

    /// Sends a bookmark, which carries only a newer resource version.
    pub fn bookmark(&self) {
        let mut cluster = self.cluster();
        let version = cluster.next_version();
        let bookmark =
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}});
        cluster.notify("BOOKMARK", &bookmark);
    }

    /// Ends all watches as the server does at its timeout: the stream simply ends.
    pub fn end_watches(&self) {
        self.cluster().watches.clear();
    }

    /// Ends all watches with 410 in the stream: their version is too old.
    pub fn expire_watches(&self) {
        let mut cluster = self.cluster();
        let error = json!({"type": "ERROR", "object": gone()});
        for watch in cluster.watches.drain(..) {
            // Fails if the client is already gone.
            let _ = watch.send(error.clone());
        }
        cluster.history.clear();
        cluster.oldest = cluster.version;
    }

    /// Makes the next watches begin with 410.
    pub fn refuse_watches_as_gone(&self, count: usize) {
        self.cluster().gone = count;
    }

    /// Answers the next requests with 429 and this Retry-After.
    pub fn throttle(&self, count: usize, retry_after_secs: u32) {
        self.cluster().throttle = (count, retry_after_secs);
    }

    /// Closes the port: connections are refused from now on.
    pub async fn stop_listening(&self) {
        self.port.close().await;
    }

    /// Opens the same port again.
    ///
    /// # Errors
    /// If another process has taken it meanwhile.
    pub async fn listen_again(&self) -> Result<(), StubError> {
        self.port.reopen().await
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.state.cluster()
    }
}

impl ApiServerState {
    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    fn patch_node(&mut self, request: &Parts, body: &[u8]) -> Response<Body> {
        let kind = request.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let path = request.uri.path();
        let is_status = path.starts_with("/api/v1/nodes/") && path.ends_with("/status");
        if !is_status || kind != Some(b"application/strategic-merge-patch+json") {
            return plain(StatusCode::NOT_FOUND, "404 page not found");
        }
        if self.are_node_patches_forbidden {
            let text = "nodes \"node-1\" is forbidden: cannot patch resource \"nodes/status\"";
            return failure(StatusCode::FORBIDDEN, "Forbidden", text);
        }
        let patch = serde_json::from_slice::<Value>(body).unwrap_or_default();
        self.node_patches.push(patch.clone());
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1"}, "status": patch["status"]});
        json_body(node.to_string().into())
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn notify(&mut self, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        self.history.push((self.version, event.clone()));
        self.watches.retain(|watch| watch.send(event.clone()).is_ok());
    }
}

fn gone() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version"})
}

#[derive(Debug)]
struct ApiServer(Arc<ApiServerState>);

impl Peer for ApiServer {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        Some(Arc::clone(&self.0.tls))
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let number = self.0.log.arrived(&request.uri().to_string());
        let (request, body) = request.into_parts();
        // Only reviews and events have a body. A client that disconnects gets the response to an
        // empty one.
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let response = self.respond(&request, &body);
        self.0.log.answered(number, response.status().as_u16());
        response
    }
}

impl ApiServer {
    fn respond(&self, request: &Parts, body: &[u8]) -> Response<Body> {
        let bearer = format!("Bearer {TOKEN}");
        if request
            .headers
            .get(AUTHORIZATION)
            .is_none_or(|value| value.as_bytes() != bearer.as_bytes())
        {
            return plain(StatusCode::UNAUTHORIZED, "Unauthorized");
        }
        let mut cluster = self.0.cluster();
        if cluster.throttle.0 > 0 {
            cluster.throttle.0 -= 1;
            return too_many_requests(cluster.throttle.1);
        }
        if let Some(answer) = cluster.events.answer(&request.method, request.uri.path(), body) {
            return answer;
        }
        if request.method == Method::PATCH {
            return cluster.patch_node(request, body);
        }
        if request.method == Method::POST {
            return cluster.readers.review(request.uri.path(), body);
        }
        if request.uri.path() != "/api/v1/pods" {
            return plain(StatusCode::NOT_FOUND, "404 page not found");
        }
        let query = request.uri.query().unwrap_or_default();
        let value =
            |key: &str| query.split('&').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
        match value("watch") {
            Some("true") => {
                let from =
                    value("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
                watch(&mut cluster, from)
            }
            _ => list(&cluster),
        }
    }
}

fn list(cluster: &Cluster) -> Response<Body> {
    let items: Vec<&Value> = cluster.pods.values().collect();
    let metadata = json!({"resourceVersion": cluster.version.to_string()});
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items});
    json_body(list.to_string().into())
}

/// A watch from a version: the events since then, followed by new ones.
fn watch(cluster: &mut Cluster, from: u64) -> Response<Body> {
    let (sender, receiver) = mpsc::unbounded_channel();
    if cluster.gone > 0 || from < cluster.oldest {
        cluster.gone = cluster.gone.saturating_sub(1);
        // The receiver exists: neither this nor the following can fail.
        let _ = sender.send(json!({"type": "ERROR", "object": gone()}));
    } else {
        for (_, event) in cluster.history.iter().filter(|(version, _)| *version > from) {
            let _ = sender.send(event.clone());
        }
        cluster.watches.push(sender);
    }
    let events =
        stream::unfold(
            receiver,
            |mut receiver| async move { Some((receiver.recv().await?, receiver)) },
        );
    streamed(events.map(|event: Value| Ok::<_, io::Error>(Bytes::from(format!("{event}\n")))))
}

fn too_many_requests(retry_after_secs: u32) -> Response<Body> {
    let mut response =
        plain(StatusCode::TOO_MANY_REQUESTS, "too many requests, please try again later");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_secs));
    response
}
