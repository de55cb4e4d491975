//! Contents of a release: the binary's dependencies, the image's builder, and the actions of the
//! workflows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Crates linked into the binary with these features.
fn linked(features: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "--locked",
        "--offline",
        "--package=cpuwarden",
        "--edges=normal",
        "--prefix=none",
    ]);
    let output =
        cargo.args(["--format={p}"]).args(features).current_dir(root("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_images_binary_has_no_dependencies_of_demo_and_terminal_view() {
    let (image, all) = (linked(&["--no-default-features"]), linked(&[]));
    for name in ["kubelet-stub", "rcgen", "ratatui", "clap_mangen"] {
        assert!(all.contains(name), "{name} is not in the full binary either");
        assert!(!image.contains(name), "{name} is in the image's binary");
    }
    assert!(read("Dockerfile").contains("--package cpuwarden --no-default-features"));
}

#[test]
fn no_unmaintained_yaml_parser_is_linked() {
    let all = linked(&[]);
    assert!(all.contains("serde-saphyr"));
    assert!(
        !all.contains("serde_yaml_ng")
            && !all.contains("serde_yaml")
            && !all.contains("unsafe-libyaml")
    );
}

#[test]
fn the_image_has_no_base_and_its_builder_is_an_argument() {
    let text = read("Dockerfile");
    let bases: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(bases, ["${BUILDER} AS build", "scratch"]);
    assert!(!text.contains("# syntax="), "a frontend of the build is an image by a tag");
}

/// All steps of all workflows, with the workflow's file.
fn steps() -> Vec<(PathBuf, Value)> {
    let files = fs::read_dir(root(".github/workflows")).unwrap().map(|entry| entry.unwrap().path());
    let steps = files.flat_map(|file| {
        let workflow: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let jobs = workflow["jobs"].as_object().unwrap().values().cloned().collect::<Vec<_>>();
        let steps = jobs.into_iter().flat_map(|job| job["steps"].as_array().unwrap().clone());
        steps.map(move |step| (file.clone(), step)).collect::<Vec<_>>()
    });
    steps.collect()
}

#[test]
fn workflows_run_actions_only_by_their_commit() {
    let steps = steps();
    assert!(!steps.is_empty());
    for (file, step) in steps {
        let Some(action) = step["uses"].as_str() else { continue };
        let commit = action.split_once('@').map_or("", |(_, commit)| commit);
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_commit, "{}: {action} is not by its commit", file.display());
    }
}

#[test]
fn advisories_are_required_where_the_network_is_there() {
    let runs = |wanted: &str| {
        steps().iter().any(|(_, step)| step["run"].as_str().is_some_and(|run| run.contains(wanted)))
    };
    assert!(runs("cargo xtask deny --require-advisories"));
}

#[test]
fn a_release_is_built_without_external_images() {
    let runs: Vec<String> =
        steps().iter().filter_map(|(_, step)| step["run"].as_str().map(str::to_owned)).collect();
    assert!(runs.iter().any(|run| run.contains("cargo xtask release")));
    assert!(
        !runs.iter().any(|run| run.contains("docker ")),
        "an image of a release comes of cargo xtask image"
    );
}
