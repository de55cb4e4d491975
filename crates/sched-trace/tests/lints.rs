//! This crate's lints are those of the workspace, except for the one that it must not forbid.

use std::collections::BTreeSet;

/// The settings of the sections whose name ends in `lints.rust]` or `lints.clippy]`.
fn lints(manifest: &str) -> BTreeSet<&str> {
    let mut is_lints = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_lints = line.ends_with("lints.rust]") || line.ends_with("lints.clippy]");
        } else if is_lints && !line.is_empty() && !line.starts_with('#') {
            found.insert(line);
        }
    }
    found
}

#[test]
fn only_unsafe_code_differs_from_the_workspace() {
    let own = lints(include_str!("../Cargo.toml"));
    let workspace = lints(include_str!("../../../Cargo.toml"));
    let differing: Vec<_> = own.symmetric_difference(&workspace).copied().collect();
    assert_eq!(differing, ["unsafe_code = \"deny\"", "unsafe_code = \"forbid\""]);
}
