//! Software bill of materials of a program: CycloneDX 1.5, one component per linked crate.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::ImageError;
use super::licenses::EXPRESSION;
use super::platform::Platform;
use super::source::Source;
use crate::process;

/// Bill of materials of a platform's program, as JSON text that ends with a newline.
///
/// Crates and licenses come from `cargo tree` (normal edges, features as built), checksums from
/// `Cargo.lock`.
///
/// # Errors
/// Cargo fails, or `Cargo.lock` cannot be read.
pub fn bill(source: &Source, platform: Platform) -> Result<String, ImageError> {
    let mut tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tree.current_dir(&source.root).args([
        "tree",
        "--locked",
        "--package",
        "cpuwarden",
        "--no-default-features",
    ]);
    tree.args(["--target", platform.target(), "--edges", "normal", "--prefix", "none"]);
    tree.args(["--no-dedupe", "--format", "{p}|{l}"]);
    let tree = String::from_utf8_lossy(&process::output_of(&mut tree)?).into_owned();
    let lock_path = source.root.join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&lock_path).map_err(|error| ImageError::io(&lock_path, error))?;
    let crates = crates_of(&tree);
    let checksums = checksums_of(&lock);
    let components: Vec<_> = crates
        .iter()
        .filter(|((name, _), _)| name != "cpuwarden")
        .map(|(key, license)| component(key, license, checksums.get(key)))
        .collect();
    let version =
        crates.keys().find(|(name, _)| name == "cpuwarden").map_or("", |(_, version)| version);
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": source.created,
            "component": {
                "type": "application", "bom-ref": "cpuwarden", "name": "cpuwarden", "version": version,
                "licenses": [{ "expression": EXPRESSION }],
                "properties": [
                    { "name": "cpuwarden:revision", "value": source.revision },
                    { "name": "cpuwarden:platform", "value": platform.to_string() },
                ],
            },
        },
        "components": components,
    });
    Ok(format!("{bill:#}\n"))
}

type Crate = (String, String);

/// Name and version of each crate in `cargo tree`'s lines (`name v1.2.3 (note)|license`), with its
/// license.
fn crates_of(tree: &str) -> BTreeMap<Crate, String> {
    let line = |line: &str| {
        let (package, license) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(((name.to_owned(), version.to_owned()), license.to_owned()))
    };
    tree.lines().filter_map(line).collect()
}

/// SHA-256 of each crate's file in the registry. The crates of this workspace have none.
fn checksums_of(lock: &str) -> BTreeMap<Crate, String> {
    let package = |section: &str| {
        let field = |key: &str| {
            let line =
                section.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

fn component((name, version): &Crate, license: &str, checksum: Option<&String>) -> Value {
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component =
        json!({ "type": "library", "bom-ref": purl, "name": name, "version": version });
    if let Some(checksum) = checksum {
        component["purl"] = json!(purl);
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if !license.is_empty() {
        // Crates older than SPDX expressions separate alternatives by a slash.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_have_their_version_license_and_checksum() {
        let tree = "cpuwarden v0.1.0 (/src)|Apache-2.0\nserde v1.0.2|MIT/Apache-2.0\nserde v1.0.2|MIT/Apache-2.0\n";
        let lock = "[[package]]\nname = \"serde\"\nversion = \"1.0.2\"\nsource = \"x\"\nchecksum = \"ab\"\n";
        let crates = crates_of(tree);
        assert_eq!(crates.len(), 2);
        let key = ("serde".to_owned(), "1.0.2".to_owned());
        let component = component(&key, &crates[&key], checksums_of(lock).get(&key));
        assert_eq!(component["purl"], "pkg:cargo/serde@1.0.2");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(component["hashes"][0]["content"], "ab");
    }
}
