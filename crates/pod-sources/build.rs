//! Generates the gRPC clients of the kubelet's sockets. protox parses the .proto files, so protoc
//! is not needed.

use std::error::Error;

/// Each with the codec of its clients. The Pods API sends pods as bytes, which are bounded before
/// they are decoded.
const PROTOS: [(&str, &str); 3] = [
    ("proto/core_v1.proto", "tonic_prost::ProstCodec"),
    ("proto/podresources_v1.proto", "crate::bounded::BoundedCodec"),
    ("proto/pods_v1alpha1.proto", "tonic_prost::ProstCodec"),
];

fn main() -> Result<(), Box<dyn Error>> {
    for (proto, codec) in PROTOS {
        println!("cargo::rerun-if-changed={proto}");
        let files = protox::compile([proto], ["proto"])?;
        tonic_prost_build::configure()
            .build_server(false)
            .build_transport(false)
            .bytes(".")
            .codec_path(codec)
            .compile_fds(files)?;
    }
    Ok(())
}
