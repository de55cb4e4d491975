//! Generates the messages of the Node Resource Interface. protox parses the .proto file, so protoc
//! is not needed.

use std::error::Error;

const PROTO: &str = "proto/api.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    // Ordered maps, so that a message has one encoding.
    prost_build::Config::new().btree_map(["."]).compile_fds(files)?;
    Ok(())
}
