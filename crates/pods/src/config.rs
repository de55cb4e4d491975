//! What the operator may set about pod sources, and its validation. Reads no pod and opens no connection.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;

/// Where kubelets mount the API server's CA into a pod.
pub const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Where kubelets mount a pod's token.
pub const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Files that kubelets serve from where the cluster issues no certificate: the kubelet's own, and k3s's. Neither holds a
/// key.
pub const HOST_CERTIFICATES: [&str; 2] =
    ["/var/lib/kubelet/pki/kubelet.crt", "/var/lib/rancher/k3s/agent/serving-kubelet.crt"];
/// The kubelet's pod-resources socket.
pub const POD_RESOURCES_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// The socket of the kubelet's Pods API (1.36 behind a gate, on by default since 1.37).
pub const PODS_API_SOCKET: &str = "/var/lib/kubelet/pods-api/pods-api.sock";

/// Largest pod list that is read. 250 pods are about 5 MB; etcd's limit of 1.5 MiB an object makes 128 MiB of 85 absurd
/// ones.
const POD_LIST_LIMIT: usize = 128 << 20;

/// Where KEP-4188 and early 1.36 releases have that socket.
pub const PODS_API_SOCKET_OF_THE_KEP: &str = "/var/lib/kubelet/pods/kubelet.sock";

/// `--pod-source`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodSource {
    /// Whatever this node offers: the kubelet's Pods API socket, its HTTPS port, the read-only port where configured,
    /// the API server where opted in.
    #[default]
    Auto,
    /// The kubelet alone, over HTTPS.
    Kubelet,
    /// The kubelet's Pods API socket alone.
    PodsApi,
    /// The kubelet's read-only port alone.
    ReadOnly,
    /// The API server alone.
    ApiServer,
    /// No names: cgroups carry what their path tells.
    None,
}

/// Everything about pod sources.
#[derive(Debug, Clone)]
pub struct PodConfig {
    /// Which sources to use.
    pub source: PodSource,
    /// This node's name: the kubelet's certificate bears it, and the API server selects by it.
    pub node_name: Option<String>,
    /// The kubelet's HTTPS port.
    pub kubelet: KubeletConfig,
    /// The read-only port, `http://127.0.0.1:10255`; off by default, as on most kubelets.
    pub readonly_url: Option<String>,
    /// Socket of the kubelet's Pods API.
    pub pods_api_socket: PathBuf,
    /// Used where that socket does not exist and this one does.
    pub pods_api_other_socket: Option<PathBuf>,
    /// Socket of pod-resources; `None` does without exclusive CPUs.
    pub pod_resources_socket: Option<PathBuf>,
    /// The API server as a source.
    pub apiserver: ApiServerConfig,
    /// Labels that are kept of each pod, beside those of Koordinator: what the configured profiles select on.
    pub label_keys: BTreeSet<String>,
    /// Bytes of a pod list that are read; the pods behind are without names.
    pub pod_list_limit: usize,
    /// Time between polls while nothing unknown is seen.
    pub poll_interval: Duration,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long a whole request may take, connection and body included.
    pub request_timeout: Duration,
}

/// The kubelet's HTTPS port.
#[derive(Debug, Clone)]
pub struct KubeletConfig {
    /// `https://host:port`.
    pub url: String,
    /// PEM file of the authorities that may have signed the kubelet's certificate. `None`: the pod's service-account
    /// CA, where it exists.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the certificate that the kubelet serves with, which is accepted as it is. It need not exist. `None`:
    /// [`HOST_CERTIFICATES`], unless `ca_file` is named.
    pub host_certificate: Option<PathBuf>,
    /// File with a bearer token. `None`: the pod's service-account token where there is one.
    pub token_file: Option<PathBuf>,
    /// Client certificate and key, PEM files, instead of a token.
    pub client_certificate: Option<ClientCertificate>,
    /// The name that a certificate from an authority must bear. `None`: the node's name or the URL's host.
    pub server_name: Option<String>,
    /// Take any certificate: whoever sits on the port can then read the token and invent pods.
    pub insecure_skip_verify: bool,
}

/// A client certificate and its key.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// PEM file, chain included.
    pub certificate_file: PathBuf,
    /// PEM file of the key.
    pub key_file: PathBuf,
}

/// The API server as a source.
#[derive(Debug, Clone)]
pub struct ApiServerConfig {
    /// Use it under `--pod-source=auto` once every local source has failed for [`Self::fallback_after`].
    /// `--pod-source=apiserver` uses it alone and at once.
    pub fallback: bool,
    /// How long local sources must have failed; a fleet's kubelets restart together, so chance adds up to as much again.
    pub fallback_after: Duration,
    /// `https://host:port`; `None`: what the pod's environment says.
    pub url: Option<String>,
    /// PEM file of its CA. `None`: the pod's service-account CA.
    pub ca_file: Option<PathBuf>,
    /// File with a bearer token. `None`: the pod's service-account token.
    pub token_file: Option<PathBuf>,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self {
            source: PodSource::Auto,
            node_name: None,
            kubelet: KubeletConfig::default(),
            readonly_url: None,
            pods_api_socket: PODS_API_SOCKET.into(),
            pods_api_other_socket: Some(PODS_API_SOCKET_OF_THE_KEP.into()),
            label_keys: BTreeSet::new(),
            pod_list_limit: POD_LIST_LIMIT,
            pod_resources_socket: Some(POD_RESOURCES_SOCKET.into()),
            apiserver: ApiServerConfig::default(),
            poll_interval: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
        }
    }
}

impl Default for ApiServerConfig {
    fn default() -> Self {
        Self { fallback: false, fallback_after: Duration::from_secs(60), url: None, ca_file: None, token_file: None }
    }
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self {
            url: "https://127.0.0.1:10250".to_owned(),
            ca_file: None,
            host_certificate: None,
            token_file: None,
            client_certificate: None,
            server_name: None,
            insecure_skip_verify: false,
        }
    }
}

/// A setting that cannot work, with the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A URL that is none.
    #[error("{setting}: {value:?} is no {scheme}://host:port URL")]
    Url {
        /// The flag.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What it must begin with.
        scheme: &'static str,
    },
    /// A file that must be readable at the start is not.
    #[error("{setting}: cannot read {}; mount the file or correct the path", path.display())]
    File {
        /// The flag.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file without what it is for.
    #[error("{setting}: {} holds no PEM {what}", path.display())]
    Pem {
        /// The flag.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// A file that must hold a certificate alone.
    #[error("{setting}: {} holds a private key; name the file with the certificate alone", path.display())]
    HoldsKey {
        /// The flag.
        setting: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Certificate and key do not fit, or the like.
    #[error("{setting}: not usable for TLS")]
    Tls {
        /// The flag.
        setting: &'static str,
        /// Why.
        source: rustls::Error,
    },
    /// A server name that no certificate can bear.
    #[error("--kubelet-server-name: {name:?} is no DNS name or IP address; give the node's name")]
    ServerName {
        /// What was given.
        name: String,
    },
    /// A source was chosen that lacks a setting.
    #[error("--pod-source={source_name} needs {setting}")]
    Missing {
        /// The source.
        source_name: &'static str,
        /// The flag.
        setting: &'static str,
    },
}

/// Splits and checks a URL of the form `scheme://host[:port]`.
pub(crate) fn base_uri(setting: &'static str, value: &str, scheme: &'static str) -> Result<Uri, ConfigError> {
    let wrong = || ConfigError::Url { setting, value: value.to_owned(), scheme };
    let uri: Uri = value.parse().map_err(|_| wrong())?;
    let plain = uri.scheme_str() == Some(scheme)
        && uri.host().is_some_and(|host| !host.is_empty())
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    if plain { Ok(uri) } else { Err(wrong()) }
}

/// Reads a file that the operator named.
pub(crate) fn read_named(setting: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::File { setting, path: path.to_owned(), source })
}
