//! `v1alpha1.Pods`, as the kubelet serves it since 1.36 (KEP-4188).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status};

use super::core_v1::Pod;
use super::pods_v1alpha1::pods_server::{Pods, PodsServer};
use super::pods_v1alpha1::{
    EventType, GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse, WatchPodsEvent,
    WatchPodsRequest,
};
use super::socket::Socket;

type Event = Result<WatchPodsEvent, Status>;

/// A Pods API socket.
#[derive(Debug)]
pub struct PodsApiStub {
    state: Arc<Mutex<PodsApiState>>,
    socket: Socket,
}

#[derive(Debug, Default)]
struct PodsApiState {
    /// Marshaled pods by UID.
    pods: BTreeMap<String, Bytes>,
    watchers: Vec<mpsc::UnboundedSender<Event>>,
    watches_begun: usize,
    failure: Option<Code>,
    /// Whether watches stop after the first pod of the initial list.
    stuck: bool,
}

impl PodsApiStub {
    /// Serves these marshaled pods at `path`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be created.
    ///
    /// # Panics
    /// If a pod is not a `v1.Pod`.
    pub fn start(path: &Path, pods: impl IntoIterator<Item = Bytes>) -> std::io::Result<Self> {
        let state = PodsApiState {
            pods: pods.into_iter().map(|pod| (uid(&pod), pod)).collect(),
            ..PodsApiState::default()
        };
        let state = Arc::new(Mutex::new(state));
        let socket = Socket::serve(path, PodsServer::new(Service(Arc::clone(&state))))?;
        Ok(Self { state, socket })
    }

    /// Adds or replaces a pod and notifies the watchers.
    pub fn apply(&self, pod: &Pod) {
        let bytes = Bytes::from(pod.encode_to_vec());
        let mut state = lock(&self.state);
        let known = state.pods.insert(uid(&bytes), bytes.clone()).is_some();
        state.notify(if known { EventType::Modified } else { EventType::Added }, &bytes);
    }

    /// Removes a pod and notifies the watchers with only its name, namespace and UID, as the
    /// kubelet does.
    pub fn delete(&self, uid: &str) {
        let mut state = lock(&self.state);
        let Some(bytes) = state.pods.remove(uid) else { return };
        let mut pod = Pod::decode(bytes).expect("decoded when it was added");
        (pod.spec, pod.status) = (None, None);
        state.notify(EventType::Deleted, &pod.encode_to_vec().into());
    }

    /// Sends bytes that are not a pod.
    pub fn send_garbage(&self) {
        lock(&self.state).notify(EventType::Modified, &Bytes::from_static(b"\xff\xff\xff"));
    }

    /// Ends all watches, as the kubelet does for clients that fall behind.
    pub fn end_watches(&self) {
        for watcher in lock(&self.state).watchers.drain(..) {
            // Fails if the watcher is already gone.
            let _ = watcher.send(Err(Status::resource_exhausted("watch client channel closed")));
        }
    }

    /// Makes all further watches fail with this code; `None` ends the fault.
    pub fn set_failure(&self, failure: Option<Code>) {
        lock(&self.state).failure = failure;
    }

    /// Makes further watches stop after the first pod of the initial list, or ends the fault.
    pub fn set_stuck(&self, stuck: bool) {
        lock(&self.state).stuck = stuck;
    }

    /// Number of watches started so far.
    pub fn watches_begun(&self) -> usize {
        lock(&self.state).watches_begun
    }

    /// Stops the server and removes its socket.
    ///
    /// # Errors
    /// If the file no longer exists.
    pub async fn stop(&self) -> std::io::Result<()> {
        lock(&self.state).watchers.clear();
        self.socket.close().await
    }

    /// Serves again in a new socket file.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn start_again(&self) -> std::io::Result<()> {
        self.socket.open(PodsServer::new(Service(Arc::clone(&self.state))))
    }
}

fn uid(pod: &Bytes) -> String {
    let pod = Pod::decode(pod.clone()).expect("a v1.Pod");
    pod.metadata.and_then(|metadata| metadata.uid).expect("a pod with a UID")
}

fn lock(state: &Mutex<PodsApiState>) -> MutexGuard<'_, PodsApiState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn event(kind: EventType, pod: Bytes) -> Event {
    Ok(WatchPodsEvent { r#type: kind.into(), pod })
}

impl PodsApiState {
    fn notify(&mut self, kind: EventType, pod: &Bytes) {
        self.watchers.retain(|watcher| watcher.send(event(kind, pod.clone())).is_ok());
    }

    fn admit(&self) -> Result<(), Status> {
        self.failure.map_or(Ok(()), |code| Err(Status::new(code, "ordered fault")))
    }
}

#[derive(Debug)]
struct Service(Arc<Mutex<PodsApiState>>);

#[tonic::async_trait]
impl Pods for Service {
    type WatchPodsStream = BoxStream<'static, Event>;

    async fn watch_pods(
        &self,
        _: Request<WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let mut state = lock(&self.0);
        state.watches_begun += 1;
        state.admit()?;
        let mut first: Vec<Event> =
            state.pods.values().map(|pod| event(EventType::Added, pod.clone())).collect();
        if state.stuck {
            return Ok(Response::new(
                stream::iter(first.into_iter().take(1)).chain(stream::pending()).boxed(),
            ));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        first.push(event(EventType::InitialSyncComplete, Bytes::new()));
        state.watchers.push(sender);
        let later = stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        Ok(Response::new(stream::iter(first).chain(later).boxed()))
    }

    async fn list_pods(
        &self,
        _: Request<ListPodsRequest>,
    ) -> Result<Response<ListPodsResponse>, Status> {
        let state = lock(&self.0);
        state.admit()?;
        Ok(Response::new(ListPodsResponse { pods: state.pods.values().cloned().collect() }))
    }

    async fn get_pod(
        &self,
        request: Request<GetPodRequest>,
    ) -> Result<Response<GetPodResponse>, Status> {
        let state = lock(&self.0);
        state.admit()?;
        let wanted = request.into_inner().pod_uid;
        let pod = state.pods.get(&wanted).cloned();
        let missing = || Status::not_found(format!("pod with UID {wanted} not found"));
        Ok(Response::new(GetPodResponse { pod: pod.ok_or_else(missing)? }))
    }
}
