//! The endpoint: /metrics, /api/v1/advice, /healthz, /readyz, and optionally /metrics/cadvisor, the
//! page and the JSON API. A request reads the latest snapshot or the history and does not touch the
//! kernel, except for pins and topology, which are read at most once in a few seconds, and for the
//! doctor, on a thread of its own at most once a minute.
//!
//! [`listen`] opens the port; [`Serving`] serves it on a thread of its own.

mod auth;
mod browsers;
mod connections;
mod page;
mod place;
mod port;
mod routes;
mod server;
mod sources;
mod tls;
mod ui;

pub use auth::Auth;
pub use server::{ListenError, Parts, ROUND, Serving, listen};
pub use sources::{AgentStatus, Readiness, Sources};
pub use tls::{Identity, TlsFiles, UnusableFile};
pub use ui::{Ui, View};
