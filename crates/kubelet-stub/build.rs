//! Generates the gRPC servers of the kubelet's sockets. The clients of crate `pod-sources` know only
//! a part of the pod-resources API.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "full")]
    {
        const PROTOS: [&str; 3] = [
            "../pod-sources/proto/core_v1.proto",
            "proto/podresources_v1.proto",
            "../pod-sources/proto/pods_v1alpha1.proto",
        ];
        for proto in PROTOS {
            println!("cargo::rerun-if-changed={proto}");
        }
        let files = protox::compile(PROTOS, ["proto", "../pod-sources/proto"])?;
        tonic_prost_build::configure()
            .build_client(false)
            .build_transport(false)
            .bytes(".")
            .compile_fds(files)?;
    }
    Ok(())
}
