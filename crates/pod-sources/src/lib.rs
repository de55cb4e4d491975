//! Sources of the node's pods: the kubelet's HTTPS API and sockets, and the API server.
//!
//! [`PodService`] queries them and publishes a [`kubepods::PodIndex`]. This crate does not read
//! cgroupfs.

mod bounded;
mod cause;
mod config;
mod grpc;
mod proto;
mod service;
mod source;

pub use cause::Cause;
pub use config::{
    ClientCertificate, ConfigError, HOST_CERTIFICATES, KubeletConfig, POD_RESOURCES_SOCKET,
    PODS_API_SOCKET, PODS_API_SOCKET_OF_THE_KEP, PodConfig, PodSource,
};
pub use service::{
    Beat, CreatedContainer, PodService, Pods, RuntimeSource, Sandbox, SourceStatus, Task,
};
pub use source::SourceName;
pub use source::host_certificate::copy_certificate;
