//! Generates the messages of the Node Resource Interface, and how much memory their objects take.
//! protox parses the .proto file, so protoc is not needed.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

const PROTO: &str = "proto/api.proto";

/// Memory of a `String`, `Vec` or `BTreeMap` without its content, bytes.
const LIST: usize = 24;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    let pool = DescriptorPool::from_file_descriptor_set(files.clone())?;
    let path = Path::new(&env::var("OUT_DIR")?).join("sizes.rs");
    fs::write(path, sizes(&pool)?)?;
    // Ordered maps, so that a message has one encoding.
    prost_build::Config::new().btree_map(["."]).enable_type_names().compile_fds(files)?;
    Ok(())
}

/// The table of `src/size.rs`: per message, its lists, maps and messages.
fn sizes(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let messages: Vec<_> = pool.all_messages().collect();
    let mut text = "const MESSAGES: &[(&str, &[Field])] = &[\n".to_owned();
    for message in &messages {
        write!(text, "({:?}, &[", message.full_name())?;
        for field in message.fields() {
            let kind = field.kind();
            let of = kind.as_message().and_then(|of| messages.iter().position(|other| other == of));
            if !field.is_list() && !field.is_map() && of.is_none() {
                continue;
            }
            let element = if field.is_list() || field.is_map() { memory_of(&kind) } else { 0 };
            let (tag, is_map) = (field.number(), field.is_map());
            let is_packed = field.is_packed();
            write!(
                text,
                "Field {{ tag: {tag}, element: {element}, is_map: {is_map}, is_packed: {is_packed}, \
                 message: {of:?} }}, "
            )?;
        }
        text.push_str("]),\n");
    }
    text.push_str("];\n");
    Ok(text)
}

/// Memory of a value, without the contents of its lists.
fn memory_of(kind: &Kind) -> usize {
    match kind {
        Kind::Message(message) => memory_of_message(message),
        Kind::String | Kind::Bytes => LIST,
        _ => 8,
    }
}

fn memory_of_message(message: &MessageDescriptor) -> usize {
    let of = |field: FieldDescriptor| match field.kind() {
        _ if field.is_list() || field.is_map() => LIST,
        // With the mark whether it is there.
        Kind::Message(message) => memory_of_message(&message) + 8,
        kind => memory_of(&kind),
    };
    message.fields().map(of).sum()
}
