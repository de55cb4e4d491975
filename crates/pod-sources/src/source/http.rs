//! `GET /pods` on the kubelet: its HTTPS port with a token or a client certificate, or its
//! read-only port.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kubepods::LabelKeys;
use tls_client::{FileStamp, SERVICE_ACCOUNT_TOKEN, TokenFile, base_uri};

use super::body::{Listed, read_pods, read_policy, read_rejection};
use super::tls::{self, TlsFiles};
use super::{SourceError, SourceName};
use crate::cause::Cause;
use crate::config::{ConfigError, PodConfig};

type Plain = Client<HttpConnector, Empty<Bytes>>;
type Secure = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// One of the kubelet's HTTP ports.
#[derive(Debug)]
pub(crate) struct KubeletHttp {
    name: SourceName,
    url: String,
    transport: Transport,
    connect_timeout: Duration,
    request_timeout: Duration,
    list_limit: usize,
    keep: LabelKeys,
}

#[derive(Debug)]
enum Transport {
    Plain(Box<Plain>),
    Tls(Box<Tls>),
}

#[derive(Debug)]
struct Tls {
    files: TlsFiles,
    token: Option<TokenFile>,
    /// Client with the stamp of the files that it was built from.
    client: Option<(FileStamp, Secure)>,
}

impl KubeletHttp {
    /// Creates the source for the HTTPS port.
    pub(crate) fn secure(config: &PodConfig) -> Result<Self, ConfigError> {
        let kubelet = &config.kubelet;
        let uri = base_uri("--kubelet-url", &kubelet.url, "https")?;
        let host = uri.host().map(|host| host.trim_matches(['[', ']'])).unwrap_or_default();
        let host = ("--kubelet-url", host);
        let names = match (kubelet.server_name.as_deref(), config.node_name.as_deref()) {
            (Some(name), _) => vec![("--kubelet-server-name", name)],
            (None, Some(node)) => vec![("--node-name", node), host],
            (None, None) => vec![host],
        };
        let files = TlsFiles::new(kubelet, &names)?;
        let token = token_file(kubelet.token_file.as_deref(), kubelet.client_certificate.is_some());
        Ok(Self::new(
            config,
            SourceName::Kubelet,
            &uri,
            Transport::Tls(Box::new(Tls { files, token, client: None })),
        ))
    }

    /// Creates the source for the read-only port at `url`.
    pub(crate) fn read_only(config: &PodConfig, url: &str) -> Result<Self, ConfigError> {
        let uri = base_uri("--kubelet-readonly-url", url, "http")?;
        let client =
            Client::builder(TokioExecutor::new()).build(http_connector(config.connect_timeout));
        Ok(Self::new(config, SourceName::ReadOnly, &uri, Transport::Plain(Box::new(client))))
    }

    fn new(config: &PodConfig, name: SourceName, base: &Uri, transport: Transport) -> Self {
        // No trailing slash: the kubelet's authorizer accepts both, but older releases redirect
        // `/pods/`.
        let url = format!("{}/pods", base.to_string().trim_end_matches('/'));
        let (connect_timeout, request_timeout) = (config.connect_timeout, config.request_timeout);
        let (list_limit, keep) = (config.pod_list_limit, config.labels_to_keep());
        Self { name, url, transport, connect_timeout, request_timeout, list_limit, keep }
    }

    /// Name of this source.
    pub(crate) fn name(&self) -> SourceName {
        self.name
    }

    /// Fetches the list within the request timeout.
    pub(crate) async fn fetch(&mut self) -> Result<Listed, SourceError> {
        let limit = self.request_timeout;
        match tokio::time::timeout(limit, self.fetch_unlimited()).await {
            Ok(result) => result,
            Err(_) => Err(SourceError::Timeout { url: self.url.clone(), after: limit }),
        }
    }

    async fn fetch_unlimited(&mut self) -> Result<Listed, SourceError> {
        let url = self.url.clone();
        let body = self.answer(&url).await?;
        read_pods(&url, body, self.list_limit, self.keep.clone()).await
    }

    /// Fetches the CPU manager policy from the kubelet's `/configz`
    /// (`kubeletconfig.cpuManagerPolicy`).
    pub(crate) async fn cpu_manager_policy(&mut self) -> Result<Box<str>, SourceError> {
        let url = format!("{}/configz", self.url.trim_end_matches("/pods"));
        let limit = self.request_timeout;
        let asked = async { read_policy(&url, self.answer(&url).await?).await };
        match tokio::time::timeout(limit, asked).await {
            Ok(result) => result,
            Err(_) => Err(SourceError::Timeout { url, after: limit }),
        }
    }

    /// The body of a successful answer. On a 401, retries once if the token file has changed.
    async fn answer(&mut self, url: &str) -> Result<Incoming, SourceError> {
        let mut response = self.get(url).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.token_changed() {
            response = self.get(url).await?;
        }
        if response.status() == StatusCode::OK {
            return Ok(response.into_body());
        }
        Err(rejection(url, response, self.identity()).await)
    }

    async fn get(&mut self, url: &str) -> Result<Response<Incoming>, SourceError> {
        let mut request = Request::get(url)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("cpuwarden/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .expect("the URL was validated and the headers are literals");
        let url = url.to_owned();
        let failed = |error: Error| match tls::certificate_remedy(&error) {
            Some(remedy) => SourceError::Certificate { url, remedy, source: Box::new(error) },
            None => SourceError::Transport { url, source: Box::new(error) },
        };
        match &mut self.transport {
            Transport::Plain(client) => client.request(request).await.map_err(failed),
            Transport::Tls(tls) => {
                if let Some(token) = &tls.token {
                    let bearer = token.read();
                    let failed =
                        |source| SourceError::File { path: token.path().to_owned(), source };
                    request.headers_mut().insert(AUTHORIZATION, bearer.map_err(failed)?);
                }
                tls.client(self.connect_timeout)?.request(request).await.map_err(failed)
            }
        }
    }

    fn identity(&self) -> Identity {
        match &self.transport {
            Transport::Tls(tls) if tls.token.is_some() => Identity::Token,
            Transport::Tls(tls) if tls.files.has_client_certificate() => Identity::Certificate,
            _ => Identity::None,
        }
    }

    /// Whether the token file now contains another token than the rejected one.
    fn token_changed(&self) -> bool {
        let Transport::Tls(tls) = &self.transport else { return false };
        let Some(token) = &tls.token else { return false };
        let rejected = token.last();
        token.read().is_ok_and(|now| Some(now) != rejected)
    }
}

impl Tls {
    /// The client for the current files; rebuilt, with new connections, if a file has changed.
    fn client(&mut self, connect_timeout: Duration) -> Result<&Secure, SourceError> {
        let stamp = self.files.stamp();
        if self.client.as_ref().is_none_or(|(made_of, _)| *made_of != stamp) {
            let connector = self.files.connector(http_connector(connect_timeout))?;
            let client = Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .build(connector);
            self.client = Some((stamp, client));
        }
        Ok(&self.client.as_ref().expect("set above where it was absent").1)
    }
}

fn http_connector(connect_timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect_timeout));
    connector.set_nodelay(true);
    connector
}

/// The configured token file, or else the pod's own unless a client certificate is used.
fn token_file(named: Option<&Path>, has_certificate: bool) -> Option<TokenFile> {
    let default =
        (!has_certificate).then(|| Path::new(SERVICE_ACCOUNT_TOKEN)).filter(|path| path.exists());
    named.or(default).map(TokenFile::new)
}

/// Credentials that a request carries.
#[derive(Debug, Clone, Copy)]
enum Identity {
    Token,
    Certificate,
    None,
}

impl Identity {
    /// Hint for the operator after a 401.
    fn hint(self) -> &'static str {
        match self {
            Self::Token => {
                "the kubelet rejected the token: it is expired or from another cluster, or the kubelet runs without \
                 webhook authentication (then use a client certificate)"
            }
            Self::Certificate => {
                "the kubelet rejected the client certificate: the kubelet's client CA \
                 (authentication.x509.clientCAFile) did not sign it"
            }
            Self::None => "no token was sent: set --kubelet-token-file or use a client certificate",
        }
    }
}

async fn rejection(url: &str, response: Response<Incoming>, identity: Identity) -> SourceError {
    let status = response.status();
    let answer = read_rejection(response.into_body()).await;
    let url = url.to_owned();
    match status {
        StatusCode::UNAUTHORIZED => SourceError::Unauthorized { url, hint: identity.hint() },
        StatusCode::FORBIDDEN => {
            SourceError::Forbidden { url, remedy: missing_rule(&answer), answer }
        }
        _ => SourceError::Status { url, status: status.as_u16(), answer },
    }
}

/// Remedy for a 403. The kubelet reports the subresources that it checked:
/// `subresource(s)=[pods proxy]` with fine-grained authorization (default since 1.33), `[proxy]`
/// before.
fn missing_rule(answer: &str) -> &'static str {
    let tried = answer.rsplit_once("subresource(s)=").map_or("", |(_, list)| list);
    if tried.split(|c: char| !c.is_ascii_alphanumeric()).any(|name| name == "pods") {
        "grant the agent's service account the verb get on the resource nodes/pods"
    } else {
        Cause::Forbidden.remedy()
    }
}
