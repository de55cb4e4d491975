//! `v1.PodResourcesLister`.

use std::future::pending;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::{Code, Request, Response, Status};

use super::podresources_v1::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use super::podresources_v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use super::socket::Socket;

/// A pod-resources socket.
#[derive(Debug)]
pub struct PodResourcesStub {
    state: Arc<Mutex<PodResourcesState>>,
    socket: Socket,
}

#[derive(Debug, Default)]
struct PodResourcesState {
    pods: Vec<PodResources>,
    allocatable: Vec<i64>,
    failure: Option<Code>,
    hangs: bool,
}

impl PodResourcesStub {
    /// Serves at `path`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn start(path: &Path) -> std::io::Result<Self> {
        let state = Arc::<Mutex<PodResourcesState>>::default();
        let socket = Socket::serve(path, server(&state))?;
        Ok(Self { state, socket })
    }

    /// Replaces the responses.
    pub fn set(&self, allocatable: &[i64], pods: Vec<PodResources>) {
        let mut state = lock(&self.state);
        state.allocatable = allocatable.to_vec();
        state.pods = pods;
    }

    /// Makes all further calls fail with this code; `None` ends the fault.
    pub fn set_failure(&self, failure: Option<Code>) {
        lock(&self.state).failure = failure;
    }

    /// Makes all further calls hang, or ends the fault.
    pub fn set_hangs(&self, hangs: bool) {
        lock(&self.state).hangs = hangs;
    }

    /// Stops the server and removes its socket.
    ///
    /// # Errors
    /// If the file no longer exists.
    pub async fn stop(&self) -> std::io::Result<()> {
        self.socket.close().await
    }

    /// Serves again in a new socket file, as after a kubelet's restart.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn start_again(&self) -> std::io::Result<()> {
        self.socket.open(server(&self.state))
    }
}

fn server(state: &Arc<Mutex<PodResourcesState>>) -> PodResourcesListerServer<Lister> {
    PodResourcesListerServer::new(Lister(Arc::clone(state)))
}

fn lock(state: &Mutex<PodResourcesState>) -> MutexGuard<'_, PodResourcesState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Lister(Arc<Mutex<PodResourcesState>>);

impl Lister {
    async fn admit(&self) -> Result<(), Status> {
        let (failure, hangs) = {
            let state = lock(&self.0);
            (state.failure, state.hangs)
        };
        if hangs {
            pending::<()>().await;
        }
        failure.map_or(Ok(()), |code| Err(Status::new(code, "ordered fault")))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.admit().await?;
        let pod_resources = lock(&self.0).pods.clone();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.admit().await?;
        let cpu_ids = lock(&self.0).allocatable.clone();
        Ok(Response::new(AllocatableResourcesResponse {
            cpu_ids,
            ..AllocatableResourcesResponse::default()
        }))
    }

    /// Answers like a kubelet without the feature gate.
    async fn get(
        &self,
        _: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        Err(Status::unknown("PodResources API Get method disabled"))
    }
}
