//! The checked-in objects are what their sources make, wherever the checkout is.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::Path;

use xtask::bpf::{OBJECTS, build, crate_directory, object_path};

fn copy_of_sources(to: &Path) {
    fs::create_dir(to.join("bpf")).unwrap();
    for entry in fs::read_dir(crate_directory().join("bpf")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "c" || extension == "h") {
            fs::copy(&path, to.join("bpf").join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn a_rebuild_elsewhere_gives_the_same_bytes() {
    let elsewhere = tempfile::tempdir().unwrap();
    copy_of_sources(elsewhere.path());
    for name in OBJECTS {
        let rebuilt = build(elsewhere.path(), name).unwrap_or_else(|error| panic!("{error}"));
        let checked_in = fs::read(object_path(name)).unwrap();
        assert!(rebuilt == checked_in, "{name}: run `cargo xtask bpf`");
    }
}

#[test]
fn another_source_gives_another_object() {
    let elsewhere = tempfile::tempdir().unwrap();
    copy_of_sources(elsewhere.path());
    let source = elsewhere.path().join("bpf/empty.bpf.c");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(&source, text.replace("return 0;", "return 1;")).unwrap();
    assert!(build(elsewhere.path(), "empty").unwrap() != fs::read(object_path("empty")).unwrap());
}
