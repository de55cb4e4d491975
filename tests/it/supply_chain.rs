//! Contents of a release: the binary's dependencies, the image's builder, the actions of the
//! workflows, the Rust version, and the package of a crate for others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::support::write_program;

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
        let steps = jobs.into_iter().flat_map(|job| match job["uses"].as_str() {
            Some(workflow) => {
                assert!(workflow.starts_with("./.github/workflows/"), "{workflow}");
                Vec::new()
            }
            None => job["steps"].as_array().unwrap().clone(),
        });
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

#[test]
fn all_tests_run_on_a_schedule_and_before_a_release() {
    let workflow = |name: &str| -> Value {
        serde_saphyr::from_str(&read(&format!(".github/workflows/{name}"))).unwrap()
    };
    let tests = workflow("tests.yml");
    assert!(tests["on"]["schedule"][0]["cron"].is_string());
    let steps = tests["jobs"]["tests"]["steps"].as_array().unwrap();
    let run = |command: &str| steps.iter().find(|step| step["run"] == command).unwrap();
    let condition = run(".ci/run --all")["if"].as_str().unwrap();
    assert!(condition.contains("'schedule'") && condition.contains("refs/tags/"), "{condition}");
    assert!(run(".ci/run")["if"].as_str().unwrap().contains("pull_request"));
    let jobs = &workflow("release.yml")["jobs"];
    assert_eq!(jobs["tests"]["uses"], "./.github/workflows/tests.yml");
    assert_eq!(jobs["release"]["needs"], "tests");
}

/// As `docker build` on an arm64 machine does without arguments.
#[test]
fn the_image_is_built_for_the_machine_that_builds_it() {
    let text = read("Dockerfile");
    assert!(!text.contains("x86_64") && text.contains("ARG TARGET=\"\""), "{text}");
    let assignment = text.lines().find_map(|line| line.trim().strip_prefix("target=")).unwrap();
    let assignment = assignment.trim_end_matches(" \\");
    let place = tempfile::tempdir().unwrap();
    let rustc = "#!/bin/sh\n[ \"$*\" = '--print host-tuple' ] && echo aarch64-unknown-linux-gnu\n";
    write_program(&place.path().join("rustc"), rustc.as_bytes());
    let target = |given: &str| {
        let script =
            format!("PATH={}:$PATH; target={assignment}; echo $target", place.path().display());
        let mut shell = Command::new("/bin/sh");
        let output = shell.args(["-c", &script]).env("TARGET", given).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(target(""), "aarch64-unknown-linux-gnu");
    assert_eq!(target("riscv64gc-unknown-linux-gnu"), "riscv64gc-unknown-linux-gnu");
}

/// The version after each of the prefixes with which Dockerfile and workflows name a toolchain.
fn named_rust_versions(text: &str) -> BTreeSet<String> {
    let prefixes = ["rust:", "Rust ", "toolchain install ", "rustup default "];
    let after = |prefix: &&'static str| text.split(*prefix).skip(1).collect::<Vec<_>>();
    let version = |rest: &str| {
        let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.');
        rest[..end.unwrap_or(rest.len())].trim_end_matches('.').to_owned()
    };
    prefixes.iter().flat_map(after).map(version).filter(|version| !version.is_empty()).collect()
}

#[test]
fn dockerfile_and_workflows_use_the_rust_version_of_the_workspace() {
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap();
    let wanted = BTreeSet::from([version.trim_end_matches('"').to_owned()]);
    let folder = |path| fs::read_dir(root(path)).unwrap().map(|entry| entry.unwrap().path());
    let workflows: Vec<_> = folder(".github/workflows").collect();
    assert!(workflows.len() > 1, "{workflows:?}");
    for file in workflows.into_iter().chain([root("Dockerfile")]) {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(named_rust_versions(&text), wanted, "{}", file.display());
    }
    let manifests: Vec<_> = folder("crates").map(|path| path.join("Cargo.toml")).collect();
    for file in manifests {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("rust-version")).collect();
        assert_eq!(lines, ["rust-version.workspace = true"], "{}", file.display());
    }
}

#[test]
fn nri_is_a_package_without_the_rest_of_the_workspace() {
    let target = tempfile::tempdir().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--package=nri", "--no-verify", "--offline", "--allow-dirty"]);
    let output =
        cargo.arg("--target-dir").arg(target.path()).current_dir(root("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let package = fs::File::open(target.path().join("package/nri-0.1.0.crate")).unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(package));
    archive.unpack(target.path()).unwrap();
    let unpacked = target.path().join("nri-0.1.0");
    for file in ["LICENSE", "README.md", "build.rs", "proto/api.proto", "examples/adjust.rs"] {
        assert!(unpacked.join(file).is_file(), "no {file}");
    }
    let manifest = fs::read_to_string(unpacked.join("Cargo.toml")).unwrap();
    for table in ["description", "readme", "keywords", "categories", "license", "rust-version"] {
        assert!(manifest.contains(&format!("\n{table} = ")), "no {table}: {manifest}");
    }
    assert!(!manifest.contains("publish = false"), "{manifest}");
    let names: BTreeSet<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("dependencies."))
        .map(|(_, name)| name.trim_end_matches(']'))
        .collect();
    assert_eq!(names, BTreeSet::from(["prost", "prost-build", "protox", "tempfile", "thiserror"]));
}
