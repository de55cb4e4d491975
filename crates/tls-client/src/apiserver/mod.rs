//! The connection to the API server, for the pod source and every other use: requests are counted
//! and rate-limited, and the token is re-read.

mod config;
mod connection;

pub use config::{ApiServerConfig, ConfigError};
pub use connection::ApiServerConnection;
