//! Pods and containers of cgroups, as plain values.
//!
//! Three parts: the grammar of cgroup paths ([`path`]), the pods of the node ([`model`],
//! [`PodIndex`]), and the decoder of the pod list ([`read_pod_list`]). This crate opens no file and
//! no connection, and reads no clock; crate `pod-sources` fills the values.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod decode;
mod exclusive;
mod index;
pub mod model;
mod names;
pub mod path;
pub mod quantity;
mod reported;

pub use decode::{
    CONTAINERS, Capacity, DecodeError, LabelKeys, POD_OBJECTS, PODS, from_wire, read_pod_list,
    read_pods_into, wire,
};
pub use exclusive::{ContainerName, ExclusiveCpus, PodName};
pub use index::{Lookup, PodIndex};
pub use names::PodNames;
pub use reported::Reported;
