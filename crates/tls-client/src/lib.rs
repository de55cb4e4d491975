//! Trust in an HTTPS server and bearer tokens, from files and settings, with their renewal. With the
//! feature `apiserver` also the connection to the API server; nothing else here opens one.

#[cfg(feature = "apiserver")]
pub mod apiserver;
mod file_stamp;
mod settings;
mod token;
mod trust;

pub use file_stamp::FileStamp;
pub use settings::{SettingError, base_uri, read_named};
pub use token::{SERVICE_ACCOUNT_TOKEN, TokenFile};
pub use trust::{SERVICE_ACCOUNT_CA, Trust, client_config, read_roots, unverified_client_config};
