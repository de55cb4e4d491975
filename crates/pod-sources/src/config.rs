//! Operator settings of pod sources, and their validation. Reads no pod and opens no connection.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use kubepods::LabelKeys;
use tls_client::SettingError;
use tls_client::apiserver::ApiServerConfig;

/// Serving certificates of kubelets in clusters that issue none: the kubelet's own, and k3s's.
/// Neither file contains a key.
pub const HOST_CERTIFICATES: [&str; 2] =
    ["/var/lib/kubelet/pki/kubelet.crt", "/var/lib/rancher/k3s/agent/serving-kubelet.crt"];
/// The kubelet's pod-resources socket.
pub const POD_RESOURCES_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// The socket of the kubelet's Pods API (feature gate in 1.36, on by default since 1.37).
pub const PODS_API_SOCKET: &str = "/var/lib/kubelet/pods-api/pods-api.sock";

/// Maximum size of a pod list, bytes. 250 pods take about 5 MB; at etcd's limit of 1.5 MiB per
/// object, 85 pods fill 128 MiB.
const POD_LIST_LIMIT: usize = 128 << 20;

/// Path of that socket in KEP-4188 and early 1.36 releases.
pub const PODS_API_SOCKET_OF_THE_KEP: &str = "/var/lib/kubelet/pods/kubelet.sock";

/// Value of `--pod-source`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodSource {
    /// All sources that this node offers: the kubelet's Pods API socket and HTTPS port, the
    /// read-only port if configured, and the API server if enabled.
    #[default]
    Auto,
    /// Only the kubelet's HTTPS port.
    Kubelet,
    /// Only the kubelet's Pods API socket.
    PodsApi,
    /// Only the kubelet's read-only port.
    ReadOnly,
    /// Only the API server.
    ApiServer,
    /// No names: cgroups are identified by their path only.
    None,
}

impl PodSource {
    /// All values.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Kubelet, Self::PodsApi, Self::ReadOnly, Self::ApiServer, Self::None];
}

/// Configuration of the pod sources.
#[derive(Debug, Clone)]
pub struct PodConfig {
    /// Sources to use.
    pub source: PodSource,
    /// This node's name: it is in the kubelet's certificate, and selects the pods at the API
    /// server.
    pub node_name: Option<String>,
    /// The kubelet's HTTPS port.
    pub kubelet: KubeletConfig,
    /// The read-only port, `http://127.0.0.1:10255`; off by default, as on most kubelets.
    pub readonly_url: Option<String>,
    /// Socket of the kubelet's Pods API.
    pub pods_api_socket: PathBuf,
    /// Used if `pods_api_socket` does not exist and this socket does.
    pub pods_api_other_socket: Option<PathBuf>,
    /// Socket of pod-resources; `None`: exclusive CPUs are not read.
    pub pod_resources_socket: Option<PathBuf>,
    /// The connection to the API server.
    pub apiserver: ApiServerConfig,
    /// Whether `--pod-source=auto` uses the API server after every local source has failed for
    /// [`Self::apiserver_fallback_after`]. `--pod-source=apiserver` uses it alone.
    pub apiserver_fallback: bool,
    /// Time for which local sources must have failed. A random delay of up to the same time is
    /// added, because the kubelets of a fleet restart together.
    pub apiserver_fallback_after: Duration,
    /// Longest random delay before the first list of `--pod-source=apiserver`, because the agents of
    /// a fleet may start together.
    pub apiserver_spread: Duration,
    /// Labels to keep of each pod, in addition to Koordinator's: those that the configured profiles
    /// select on.
    pub label_keys: BTreeSet<String>,
    /// Maximum size of a pod list, bytes; pods beyond it have no names.
    pub pod_list_limit: usize,
    /// Time between polls while no cgroup is unnamed.
    pub poll_interval: Duration,
    /// Time without names after which the agent continues without them.
    pub names_after: Duration,
    /// Timeout of a connection attempt to the kubelet.
    pub connect_timeout: Duration,
    /// Timeout of a whole request, including connection and body.
    pub request_timeout: Duration,
}

/// The kubelet's HTTPS port.
#[derive(Debug, Clone)]
pub struct KubeletConfig {
    /// `https://host:port`.
    pub url: String,
    /// PEM file of the CAs that may have signed the kubelet's certificate. `None`: the pod's
    /// service-account CA, if it exists.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the kubelet's serving certificate, which is trusted as it is. The file may be
    /// absent. `None`: [`HOST_CERTIFICATES`], unless `ca_file` is set.
    pub host_certificate: Option<PathBuf>,
    /// File with a bearer token. `None`: the pod's service-account token, if there is one.
    pub token_file: Option<PathBuf>,
    /// Client certificate and key (PEM files), used instead of a token.
    pub client_certificate: Option<ClientCertificate>,
    /// The name that a CA-signed certificate must contain. `None`: the node's name or the URL's
    /// host.
    pub server_name: Option<String>,
    /// Do not verify the certificate (insecure): an impostor on the port can read the token and
    /// forge the pod list.
    pub insecure_skip_verify: bool,
}

/// A client certificate and its key.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// PEM file of the certificate, including its chain.
    pub certificate_file: PathBuf,
    /// PEM file of the key.
    pub key_file: PathBuf,
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
            apiserver_fallback: false,
            apiserver_fallback_after: Duration::from_secs(60),
            apiserver_spread: Duration::from_secs(10),
            poll_interval: Duration::from_secs(30),
            names_after: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
        }
    }
}

impl PodConfig {
    /// The labels to keep of each pod.
    pub(crate) fn labels_to_keep(&self) -> LabelKeys {
        LabelKeys::Only(self.label_keys.iter().map(|key| key.as_str().into()).collect())
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

/// An invalid configuration, with the flag and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An invalid URL, or a file that cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A file that must contain only a certificate.
    #[error("{setting}: {} contains a private key; use a file that contains only the certificate", path.display())]
    HoldsKey {
        /// Flag.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: std::io::Error,
    },
    /// A server name that cannot occur in a certificate.
    #[error(
        "{setting}: {name:?} cannot be a name in the kubelet's certificate; set --kubelet-server-name to one of its names"
    )]
    ServerName {
        /// Flag.
        setting: &'static str,
        /// Given name.
        name: String,
    },
    /// A setting that the chosen source does not use.
    #[error(
        "{setting} is not used with --pod-source={source_name}; use auto, or remove one of them"
    )]
    Unused {
        /// Name of the source.
        source_name: &'static str,
        /// Flag.
        setting: &'static str,
    },
    /// The chosen source lacks a setting.
    #[error("--pod-source={source_name} needs {setting}")]
    Missing {
        /// Name of the source.
        source_name: &'static str,
        /// Missing flag.
        setting: &'static str,
    },
}

impl From<tls_client::apiserver::ConfigError> for ConfigError {
    fn from(error: tls_client::apiserver::ConfigError) -> Self {
        match error {
            tls_client::apiserver::ConfigError::Missing { setting } => {
                Self::Missing { source_name: "apiserver", setting }
            }
            tls_client::apiserver::ConfigError::Setting(error) => Self::Setting(error),
        }
    }
}
