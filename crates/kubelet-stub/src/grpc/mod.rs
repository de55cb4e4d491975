//! The kubelet's gRPC sockets, for tests.

mod pod_resources;
mod pods_api;
mod socket;

pub use generated::{core_v1, podresources_v1, pods_v1alpha1};
pub use pod_resources::PodResourcesStub;
pub use pods_api::PodsApiStub;

/// Messages and servers that `build.rs` generates from the .proto files of crate `pod-sources`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated {
    pub mod core_v1 {
        tonic::include_proto!("core_v1");
    }

    pub mod podresources_v1 {
        tonic::include_proto!("v1");
    }

    pub mod pods_v1alpha1 {
        tonic::include_proto!("v1alpha1");
    }
}
