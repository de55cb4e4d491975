//! Operator settings of the connection, and their errors.

use std::path::PathBuf;
use std::time::Duration;

use crate::SettingError;

/// Address of the API server, and the agent's credentials.
#[derive(Debug, Clone)]
pub struct ApiServerConfig {
    /// `https://host:port`; `None`: from the pod's environment.
    pub url: Option<String>,
    /// PEM file of its CA. `None`: the pod's service-account CA.
    pub ca_file: Option<PathBuf>,
    /// File with a bearer token. `None`: the pod's service-account token.
    pub token_file: Option<PathBuf>,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
}

impl Default for ApiServerConfig {
    fn default() -> Self {
        Self { url: None, ca_file: None, token_file: None, connect_timeout: Duration::from_secs(2) }
    }
}

/// An invalid configuration, with the flag and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no default outside a pod.
    #[error("set {setting}")]
    Missing {
        /// Flag.
        setting: &'static str,
    },
    /// An invalid URL, or a file that cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
}
