//! The API server as a source, if the operator enables it: one watch on this node's pods, through
//! `kube`.
//!
//! The load on the cluster is bounded: the first list comes from the API server's cache (resource
//! version 0), the watch requests bookmarks, and failures back off with jitter.
//! [`ApiServerConnection`] counts and limits the requests.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use kubepods::model::Pod;
use kubepods::wire::WirePod;
use kubepods::{LabelKeys, from_wire};
use tls_client::apiserver::ApiServerConnection;
use tokio::time::{Instant, sleep, timeout_at};

use super::watched::WatchedPods;
use super::{SourceError, Updates};
use crate::config::{ConfigError, PodConfig};

/// Time between attempts to create a client while its files cannot be read.
const FILES_RETRY: Duration = Duration::from_secs(10);
/// Time for which changes are collected and then published together.
const FLOCK: Duration = Duration::from_millis(100);
/// The API server of the cluster.
#[derive(Debug)]
pub(crate) struct ApiServer {
    connection: ApiServerConnection,
    node: String,
    keep: LabelKeys,
}

impl ApiServer {
    /// Creates the source; `requests` counts the requests sent.
    pub(crate) fn new(config: &PodConfig, requests: Arc<AtomicU64>) -> Result<Self, ConfigError> {
        let missing = ConfigError::Missing { source_name: "apiserver", setting: "--node-name" };
        let connection = ApiServerConnection::new(&config.apiserver, requests)?;
        Ok(Self {
            connection,
            node: config.node_name.clone().ok_or(missing)?,
            keep: config.labels_to_keep(),
        })
    }

    /// Watches forever; sends the whole list after every batch of changes.
    pub(crate) async fn watch(&self, updates: &Updates) {
        loop {
            match self.connection.client() {
                Ok(client) => self.follow(client, updates).await,
                Err(error) => updates.failed(self.failed(error)).await,
            }
            sleep(FILES_RETRY).await;
        }
    }

    async fn follow(&self, client: Client, updates: &Updates) {
        let fields = format!("spec.nodeName={}", self.node);
        // No paging: with a limit kube would omit resource version 0, and the list would be read
        // from etcd.
        let config = watcher::Config {
            page_size: None,
            ..watcher::Config::default().any_semantic().fields(&fields)
        };
        let mut events =
            std::pin::pin!(watcher(Api::<ApiPod>::all(client), config).default_backoff());
        let mut pods = Listing::default();
        while let Some(event) = events.next().await {
            let mut changed = self.take(event, &mut pods, updates).await;
            let flock_ends = Instant::now() + FLOCK;
            while let Ok(Some(event)) = timeout_at(flock_ends, events.next()).await {
                changed |= self.take(event, &mut pods, updates).await;
            }
            if changed {
                updates.send(pods.present.listed()).await;
            }
        }
    }

    /// Handles one event; returns whether the current list has changed.
    async fn take(
        &self,
        event: watcher::Result<Event<ApiPod>>,
        pods: &mut Listing,
        updates: &Updates,
    ) -> bool {
        match event {
            Ok(event) => pods.apply(event, &self.keep),
            // 410: the watch fell behind the server's history; the watcher lists again by itself.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => false,
            Err(error) => {
                updates.failed(self.failed(error)).await;
                false
            }
        }
    }

    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
        SourceError::ApiServer { url: self.connection.url(), source: Box::new(error) }
    }
}

/// The pods according to the events so far.
#[derive(Debug, Default)]
struct Listing {
    present: WatchedPods,
    /// A list that is still being received.
    next: WatchedPods,
}

impl Listing {
    /// Applies an event; returns whether the current list has changed, which it does not while a
    /// new list is received.
    fn apply(&mut self, event: Event<ApiPod>, keep: &LabelKeys) -> bool {
        match event {
            Event::Init => self.next = WatchedPods::default(),
            Event::InitApply(pod) => pod.insert_into(&mut self.next, keep),
            Event::InitDone => {
                self.present = std::mem::take(&mut self.next);
                return true;
            }
            Event::Apply(pod) => {
                pod.insert_into(&mut self.present, keep);
                return true;
            }
            Event::Delete(pod) => return self.present.remove(&pod.pod.uid),
        }
        false
    }
}

/// A pod for `kube`: the kept data, and the metadata that it needs to resume a watch.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(from = "WirePod")]
struct ApiPod {
    metadata: ObjectMeta,
    pod: Arc<Pod>,
    is_too_large: bool,
}

impl ApiPod {
    fn insert_into(self, pods: &mut WatchedPods, keep: &LabelKeys) {
        let uid = self.pod.uid.clone();
        pods.insert(&uid, (!self.is_too_large).then(|| keep.strip(self.pod)));
    }
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
        let is_too_large = wire.is_too_large();
        Self { metadata, pod: Arc::new(from_wire(wire, &LabelKeys::All)), is_too_large }
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
