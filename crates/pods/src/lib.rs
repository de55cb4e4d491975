//! Pods and containers of cgroups.
//!
//! Three parts: the grammar of cgroup paths ([`path`], pure), the pods of the node ([`model`], [`PodIndex`], pure
//! values), and the service that reads them from the kubelet ([`PodService`], the only I/O). This crate does not read
//! cgroupfs and writes nothing.

mod cause;
mod config;
mod decode;
mod exclusive;
mod grpc;
mod index;
pub mod model;
pub mod path;
pub mod quantity;
mod service;
mod source;

pub use cause::Cause;
pub use config::{
    ApiServerConfig, ClientCertificate, ConfigError, HOST_CERTIFICATES, KubeletConfig, POD_RESOURCES_SOCKET,
    PODS_API_SOCKET, PODS_API_SOCKET_OF_THE_KEP, PodConfig, PodSource, SERVICE_ACCOUNT_CA, SERVICE_ACCOUNT_TOKEN,
};
pub use decode::{DecodeError, read_pod_list};
pub use exclusive::{ContainerName, ExclusiveCpus, PodName};
pub use index::{Lookup, PodIndex};
pub use service::{Beat, PodService, Pods, SourceStatus, Task};
pub use source::SourceName;
pub use source::connection::ApiServerConnection;
pub use source::trust::{client_config, copy_certificate};
