//! Clients of the API server with the agent's credentials.
//!
//! `Retry-After` is respected, and every request sent is counted, including retries.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Uri;
use http::header::AUTHORIZATION;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::retry::RetryPolicy;
use kube::client::{AuthError, ConfigExt};
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::limit::RateLimitLayer;
use tower::retry::RetryLayer;

use super::config::{ApiServerConfig, ConfigError};
use crate::{SERVICE_ACCOUNT_CA, SERVICE_ACCOUNT_TOKEN, TokenFile, base_uri, read_named};

/// Maximum number of requests per [`RATE_WINDOW`]. The backoff after failures never reaches it. A
/// server that ends every watch at once does not fail, however, and only this limit slows the
/// client down.
const RATE: u64 = 10;
const RATE_WINDOW: Duration = Duration::from_secs(30);
/// Number of requests that may wait for the rate limit; the watch has one at a time.
const QUEUE: usize = 4;

/// Address of the API server, the agent's credentials, and the count of its requests.
#[derive(Debug, Clone)]
pub struct ApiServerConnection {
    url: Uri,
    ca_file: PathBuf,
    token_file: PathBuf,
    connect_timeout: Duration,
    requests: Arc<AtomicU64>,
}

impl ApiServerConnection {
    /// Creates the connection; `requests` counts the requests sent.
    ///
    /// # Errors
    /// Fails if it is not configured outside a pod, or if a configured CA cannot be read.
    pub fn new(config: &ApiServerConfig, requests: Arc<AtomicU64>) -> Result<Self, ConfigError> {
        let missing = ConfigError::Missing { setting: "--apiserver-url (outside a pod)" };
        let url = config.url.clone().or_else(in_cluster_url).ok_or(missing)?;
        if let Some(path) = &config.ca_file {
            read_named("--apiserver-ca-file", path)?;
        }
        let or = |named: &Option<PathBuf>, default| {
            named.as_deref().unwrap_or(Path::new(default)).to_owned()
        };
        Ok(Self {
            url: base_uri("--apiserver-url", &url, "https")?,
            ca_file: or(&config.ca_file, SERVICE_ACCOUNT_CA),
            token_file: or(&config.token_file, SERVICE_ACCOUNT_TOKEN),
            connect_timeout: config.connect_timeout,
            requests,
        })
    }

    /// Checks the configuration, and that the CA and the token can be read. Opens no connection.
    ///
    /// # Errors
    /// Fails if it is not configured outside a pod, or if a file cannot be read.
    pub fn validate(config: &ApiServerConfig) -> Result<(), ConfigError> {
        let connection = Self::new(config, Arc::default())?;
        read_named("--apiserver-ca-file", &connection.ca_file)?;
        read_named("--apiserver-token-file", &connection.token_file)?;
        Ok(())
    }

    /// The server's address.
    pub fn url(&self) -> String {
        self.url.to_string()
    }

    /// Creates a client with its own rate limit. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the CA or the token cannot be read.
    pub fn client(&self) -> kube::Result<Client> {
        self.client_with(RATE)
    }

    /// Same as [`ApiServerConnection::client`], with at most `rate` requests per half minute.
    ///
    /// # Errors
    /// Fails if the CA or the token cannot be read.
    pub fn client_with(&self, rate: u64) -> kube::Result<Client> {
        let mut config = kube::Config::new(self.url.clone());
        config.root_cert_file = Some(self.ca_file.clone());
        // The roots of the file replace these. Without any, kube also loads the system's, and the
        // image has none.
        config.root_cert = Some(Vec::new());
        config.connect_timeout = Some(self.connect_timeout);
        let https = config.rustls_https_connector()?;
        let token = Arc::new(TokenFile::new(&self.token_file));
        token.read().map_err(|error| {
            kube::Error::Auth(AuthError::ReadTokenFile(error, self.token_file.clone()))
        })?;
        let requests = Arc::clone(&self.requests);
        let retry = RetryPolicy::new(Duration::from_secs(1), Duration::from_secs(60), 10, true)
            .expect("the first delay is shorter than the last");
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer(BufferLayer::new(QUEUE))
            .layer(RetryLayer::new(retry))
            .layer(BufferLayer::new(QUEUE))
            .layer(RateLimitLayer::new(rate, RATE_WINDOW))
            .map_request(move |mut request: http::Request<kube::client::Body>| {
                requests.fetch_add(1, Ordering::Relaxed);
                // kube's own layer would send the file unchanged, including the trailing newline.
                if let Ok(bearer) = token.read() {
                    request.headers_mut().insert(AUTHORIZATION, bearer);
                }
                request
            })
            .map_err(tower::BoxError::from)
            .service(HttpClient::builder(TokioExecutor::new()).build(https));
        Ok(Client::new(service, config.default_namespace))
    }
}

/// URL of the API server, from the environment variables that the kubelet sets in every pod.
fn in_cluster_url() -> Option<String> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}
