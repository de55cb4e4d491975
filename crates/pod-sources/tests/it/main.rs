//! Each source against a stub; the memory of a large list needs a process of its own.

mod apiserver;
mod faults;
mod kubelet;
mod pod_resources;
mod pods_api;
mod support;
mod trust;
