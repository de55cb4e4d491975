//! The API server, where the operator opts in: one watch on this node's pods, through `kube`.
//!
//! What the cluster pays is bounded and counted: the first list is served from the API server's cache (resource version
//! 0), the watch asks for bookmarks, failures back off with jitter, `Retry-After` is honoured, and a rate limit stands
//! before the connection. Every request that leaves is counted there, retries included.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::Uri;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::ConfigExt;
use kube::client::retry::RetryPolicy;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout_at};
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::limit::RateLimitLayer;
use tower::retry::RetryLayer;

use super::{SourceError, Updates};
use crate::config::{ApiServerConfig, ConfigError, PodConfig, SERVICE_ACCOUNT_CA, SERVICE_ACCOUNT_TOKEN, base_uri};
use crate::decode::{WirePod, from_wire};
use crate::model::Pod;

/// At most this many requests in [`RATE_WINDOW`]: more than the backoff between failures ever makes, but a server that
/// ends every watch at once is not failing, and nothing else would hold the client back.
const RATE: u64 = 10;
const RATE_WINDOW: Duration = Duration::from_secs(30);
/// Time between attempts to make a client while its files cannot be read.
const FILES_RETRY: Duration = Duration::from_secs(10);
/// Changes come in flocks; they are published together.
const FLOCK: Duration = Duration::from_millis(100);
/// Requests that wait for the rate limit; the watch has one at a time.
const QUEUE: usize = 4;

/// The API server of the cluster.
#[derive(Debug)]
pub(crate) struct ApiServer {
    url: Uri,
    ca_file: PathBuf,
    token_file: PathBuf,
    node: String,
    connect_timeout: Duration,
    requests: Arc<AtomicU64>,
}

impl ApiServer {
    /// `requests` counts what leaves.
    pub(crate) fn new(config: &PodConfig, requests: Arc<AtomicU64>) -> Result<Self, ConfigError> {
        let missing = |setting| ConfigError::Missing { source_name: "apiserver", setting };
        let url = match &config.apiserver.url {
            Some(url) => url.clone(),
            None => in_cluster_url().ok_or_else(|| missing("--apiserver-url (outside a pod)"))?,
        };
        let ApiServerConfig { ca_file, token_file, .. } = &config.apiserver;
        if let Some(path) = ca_file {
            crate::config::read_named("--apiserver-ca-file", path)?;
        }
        let or = |named: &Option<PathBuf>, default| named.as_deref().unwrap_or(Path::new(default)).to_owned();
        Ok(Self {
            url: base_uri("--apiserver-url", &url, "https")?,
            ca_file: or(ca_file, SERVICE_ACCOUNT_CA),
            token_file: or(token_file, SERVICE_ACCOUNT_TOKEN),
            node: config.node_name.clone().ok_or_else(|| missing("--node-name"))?,
            connect_timeout: config.connect_timeout,
            requests,
        })
    }

    /// Watches for ever; sends the whole list after every flock of changes.
    pub(crate) async fn watch(&self, updates: &Updates) {
        loop {
            match self.client() {
                Ok(client) => self.follow(client, updates).await,
                Err(error) => updates.failed(self.failed(error)).await,
            }
            sleep(FILES_RETRY).await;
        }
    }

    async fn follow(&self, client: Client, updates: &Updates) {
        let fields = format!("spec.nodeName={}", self.node);
        // Without pages: a limit would make kube leave out resource version 0, and the list would go to etcd.
        let config = watcher::Config { page_size: None, ..watcher::Config::default().any_semantic().fields(&fields) };
        let mut events = std::pin::pin!(watcher(Api::<ApiPod>::all(client), config).default_backoff());
        let mut pods = Listing::default();
        while let Some(event) = events.next().await {
            let mut changed = self.take(event, &mut pods, updates).await;
            let flock_ends = Instant::now() + FLOCK;
            while let Ok(Some(event)) = timeout_at(flock_ends, events.next()).await {
                changed |= self.take(event, &mut pods, updates).await;
            }
            if changed {
                updates.send(pods.present.values().cloned().collect()).await;
            }
        }
    }

    /// Takes one event; true when the present list has changed.
    async fn take(&self, event: watcher::Result<Event<ApiPod>>, pods: &mut Listing, updates: &Updates) -> bool {
        match event {
            Ok(event) => pods.apply(event),
            // 410: the watch fell behind the server's history; the watcher lists anew by itself.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => false,
            Err(error) => {
                updates.failed(self.failed(error)).await;
                false
            }
        }
    }

    fn client(&self) -> kube::Result<Client> {
        let mut config = kube::Config::new(self.url.clone());
        config.root_cert_file = Some(self.ca_file.clone());
        config.auth_info.token_file = Some(self.token_file.to_string_lossy().into_owned());
        config.connect_timeout = Some(self.connect_timeout);
        let https = config.rustls_https_connector()?;
        let requests = Arc::clone(&self.requests);
        let retry = RetryPolicy::new(Duration::from_secs(1), Duration::from_secs(60), 10, true)
            .expect("the first delay is shorter than the last");
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(BufferLayer::new(QUEUE))
            .layer(RetryLayer::new(retry))
            .layer(BufferLayer::new(QUEUE))
            .layer(RateLimitLayer::new(RATE, RATE_WINDOW))
            .map_request(move |request| {
                requests.fetch_add(1, Ordering::Relaxed);
                request
            })
            .map_err(tower::BoxError::from)
            .service(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(https));
        Ok(Client::new(service, config.default_namespace))
    }

    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
        SourceError::ApiServer { url: self.url.to_string(), source: Box::new(error) }
    }
}

/// What the kubelet tells every pod of the API server's place.
fn in_cluster_url() -> Option<String> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}

/// The pods as the events have made them.
#[derive(Debug, Default)]
struct Listing {
    present: HashMap<Box<str>, Arc<Pod>>,
    /// A list that is still coming in.
    next: HashMap<Box<str>, Arc<Pod>>,
}

impl Listing {
    /// True when the present list has changed: not while a new one comes in.
    fn apply(&mut self, event: Event<ApiPod>) -> bool {
        match event {
            Event::Init => self.next.clear(),
            Event::InitApply(pod) => {
                self.next.insert(pod.pod.uid.clone(), pod.pod);
            }
            Event::InitDone => {
                self.present = std::mem::take(&mut self.next);
                return true;
            }
            Event::Apply(pod) => {
                self.present.insert(pod.pod.uid.clone(), pod.pod);
                return true;
            }
            Event::Delete(pod) => return self.present.remove(&pod.pod.uid).is_some(),
        }
        false
    }
}

/// A pod as `kube` needs it: what is kept, and the little metadata that a watch is resumed by.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(from = "WirePod")]
struct ApiPod {
    metadata: ObjectMeta,
    pod: Arc<Pod>,
}

impl From<WirePod> for ApiPod {
    fn from(wire: WirePod) -> Self {
        let text = |text: &str| Some(text.to_owned());
        let metadata = ObjectMeta {
            name: text(&wire.metadata.name),
            namespace: text(&wire.metadata.namespace),
            uid: text(&wire.metadata.uid),
            resource_version: wire.metadata.resource_version.as_deref().and_then(text),
            ..ObjectMeta::default()
        };
        Self { metadata, pod: Arc::new(from_wire(wire)) }
    }
}

impl kube::Resource for ApiPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
