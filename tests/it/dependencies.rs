//! Checks that the sources of each crate name every dependency of its manifest.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::arrows::packages;

/// Dependencies of code that a build script generates, which is not among the sources.
const GENERATED: &[(&str, &str)] = &[("kubelet-stub", "tonic-prost")];

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    for package in packages() {
        let krate = package["name"].as_str().unwrap();
        let sources = Sources::of(&package);
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if !GENERATED.contains(&(krate, name)) && !sources.name(dependency) {
                unused.push(format!("{krate}: {name} ({})", kind(dependency)));
            }
        }
    }
    assert!(unused.is_empty(), "remove these from the manifests: {unused:#?}");
}

/// Libraries that the product uses wherever they serve.
const FIXED: [&str; 10] = [
    "cgroups-rs",
    "clap",
    "k8s-openapi",
    "kube",
    "procfs",
    "prometheus",
    "serde",
    "serde_json",
    "tokio",
    "tracing",
];

/// The test above shows that a dependency of a manifest is used. `testkit` makes the cgroups of the
/// demo, which is in the product.
#[test]
fn fixed_libraries_are_in_the_product() {
    let development = ["corpus", "kubelet-stub", "xtask"];
    let packages = packages();
    let product =
        packages.iter().filter(|package| !development.contains(&package["name"].as_str().unwrap()));
    let dependencies: Vec<&Value> =
        product.flat_map(|package| package["dependencies"].as_array().unwrap()).collect();
    for library in FIXED {
        let is_used =
            dependencies.iter().any(|one| one["name"] == library && one["kind"].is_null());
        assert!(is_used, "no crate of the product depends on {library}");
    }
}

/// Crates that know the place of the node's `/proc`: they open its files, or give it to one of these
/// that does. The binary configures them.
const KNOW_PROC: [&str; 9] = [
    "advisor",
    "cgroupfs",
    "cpuwarden",
    "node-commands",
    "pinning",
    "runtimes",
    "sampler",
    "state-dir",
    "yielding",
];

/// Crates that write cgroup files: the two writers of the agent, and those that make cgroups for the
/// demo and the tests.
const WRITE_CGROUPS: [&str; 4] = ["demo", "pinning", "testkit", "yielding"];

#[test]
fn only_pinning_and_yielding_write_to_the_nodes_cgroups() {
    assert_eq!(others_with("cgroupfs", ["control::write", "cgroups_rs::"]), WRITE_CGROUPS);
}

#[test]
fn metrics_history_and_views_open_no_file_of_proc() {
    assert_eq!(others_with("xtask", ["proc_root", "procfs::"]), KNOW_PROC);
}

/// Names of the crates, except one, whose sources have one of the words, sorted.
fn others_with(except: &str, words: [&str; 2]) -> Vec<String> {
    let packages = packages();
    let others = packages.iter().filter(|package| package["name"] != except);
    let having = others.filter(|package| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let mut source = String::new();
        append_product(&manifest.with_file_name("src"), &mut source);
        words.iter().any(|word| source.contains(word))
    });
    let mut names: Vec<_> =
        having.map(|package| package["name"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn generated_code_is_all_that_uses_the_exceptions() {
    for (krate, name) in GENERATED {
        let packages = packages();
        let package = packages.iter().find(|package| package["name"] == *krate).unwrap();
        let all = package["dependencies"].as_array().unwrap();
        let dependency = all.iter().find(|dependency| dependency["name"] == *name);
        let dependency = dependency.unwrap_or_else(|| panic!("{krate} does not depend on {name}"));
        assert!(!Sources::of(package).name(dependency), "{krate} names {name}: no exception");
    }
}

/// The sources of a crate by the kind of the dependencies that they may use, without comments.
struct Sources {
    normal: String,
    /// Of tests and benchmarks; unit tests are among the normal ones.
    dev: String,
    build: String,
}

impl Sources {
    fn of(package: &Value) -> Self {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let read = |names: &[&str]| {
            let mut text = String::new();
            names.iter().for_each(|name| append(&manifest.with_file_name(name), &mut text));
            text
        };
        Self {
            normal: read(&["src"]),
            dev: read(&["tests", "benches"]),
            build: read(&["build.rs"]),
        }
    }

    /// Whether a path that starts with the dependency occurs in the sources of its kind.
    fn name(&self, dependency: &Value) -> bool {
        let name = dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap();
        let start = format!("{}::", name.replace('-', "_"));
        let occurs =
            |source: &str| source.match_indices(&start).any(|(at, _)| begins_path(&source[..at]));
        match kind(dependency) {
            "dev" => occurs(&self.normal) || occurs(&self.dev),
            "build" => occurs(&self.build),
            _ => occurs(&self.normal),
        }
    }
}

/// Whether a name after this text is the first of its path, such as `kube` in `kube::Api` and
/// `::kube::Api`, but not in `crate::kube::Api`.
fn begins_path(before: &str) -> bool {
    let continues =
        |text: &str| text.ends_with(|last: char| last.is_alphanumeric() || "_:.>".contains(last));
    !continues(before.strip_suffix("::").unwrap_or(before))
}

fn kind(dependency: &Value) -> &str {
    dependency["kind"].as_str().unwrap_or("normal")
}

/// As [`append`], without unit tests that are files of their own.
fn append_product(path: &Path, text: &mut String) {
    if path.file_stem().is_some_and(|stem| stem == "tests") {
        return;
    }
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| append_product(&entry.unwrap().path(), text));
    } else {
        append(path, text);
    }
}

/// Appends a source, or all below a directory, without the lines that are comments. A module of
/// another crate, included by its path, belongs to the source.
fn append(path: &Path, text: &mut String) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| append(&entry.unwrap().path(), text));
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
        let source = fs::read_to_string(path).unwrap();
        let code = source.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        for line in code {
            text.push_str(line);
            text.push('\n');
            let included = line.strip_prefix("#[path = \"").and_then(|rest| rest.split_once('"'));
            if let Some((included, _)) = included {
                append(&path.with_file_name(included), text);
            }
        }
    }
}
