//! Messages of the API, generated from `proto/api.proto`.
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/nri.pkg.api.v1alpha1.rs"));
