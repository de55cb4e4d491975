//! Generates the gRPC servers of the kubelet's sockets from the same .proto files as the clients of
//! crate `pod-sources`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "full")]
    {
        const DIRECTORY: &str = "../pod-sources/proto";
        const PROTOS: [&str; 3] = ["core_v1.proto", "podresources_v1.proto", "pods_v1alpha1.proto"];
        for proto in PROTOS {
            println!("cargo::rerun-if-changed={DIRECTORY}/{proto}");
        }
        let files = protox::compile(PROTOS, [DIRECTORY])?;
        tonic_prost_build::configure()
            .build_client(false)
            .build_transport(false)
            .bytes(".")
            .compile_fds(files)?;
    }
    Ok(())
}
