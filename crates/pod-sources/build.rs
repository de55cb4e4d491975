//! Generates the gRPC clients of the kubelet's sockets. protox parses the .proto files, so protoc
//! is not needed.

use std::error::Error;

const PROTOS: [&str; 3] =
    ["proto/core_v1.proto", "proto/podresources_v1.proto", "proto/pods_v1alpha1.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for proto in PROTOS {
        println!("cargo::rerun-if-changed={proto}");
    }
    let files = protox::compile(PROTOS, ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
