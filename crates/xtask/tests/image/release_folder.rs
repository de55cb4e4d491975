//! The files of a release that need no build of the image.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use xtask::image::{self, PLATFORMS};
use xtask::{release, tools, workspace};

use super::registry::{Registry, succeeded};
use super::{Layout, sha256, source};

const REPOSITORY: &str = "registry.example.com/team/cpuwarden";
const DIGEST: &str = "sha256:6ecf2ce5da32b5db6d6cb2b1f5c1c7cf5d7a5e1d3a4b8c9d0e1f2a3b4c5d6e7f";

/// The folder of a release, without image and plugin.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    release::complete(folder.path(), &source(), REPOSITORY, DIGEST).unwrap();
    folder
}

fn helm(arguments: &[&str], folder: &Path) -> String {
    succeeded(Command::new(tools::helm().unwrap()).args(arguments).current_dir(folder))
}

#[test]
fn a_release_contains_chart_manifests_licenses_and_checksums() {
    let folder = folder();
    let names: BTreeSet<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected = [
        "LICENSE",
        "LICENSE-BSD-2-Clause",
        "LICENSE-GPL-2.0",
        "SHA256SUMS",
        "cpuwarden-0.1.0.tgz",
        "cpuwarden-chart-0.1.0.oci.tar",
        "monitor.yaml",
        "pin.yaml",
        "prometheus-operator.yaml",
        "trace.yaml",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
    let mut sha256sum = Command::new("sha256sum");
    let checked = succeeded(
        sha256sum.args(["--check", "--strict", release::CHECKSUMS]).current_dir(folder.path()),
    );
    assert_eq!(checked.lines().count(), expected.len() - 1, "{checked}");
    for manifest in ["monitor.yaml", "trace.yaml", "pin.yaml"] {
        let text = fs::read_to_string(folder.path().join(manifest)).unwrap();
        assert!(text.contains(&format!("image: \"{REPOSITORY}@{DIGEST}\"")), "{manifest}: {text}");
    }
}

#[test]
fn licenses_are_those_that_the_sources_name() {
    let licenses = image::licenses(&source()).unwrap();
    let text = |name: &str| {
        let license = licenses.iter().find(|license| license.name == name).unwrap();
        String::from_utf8(license.text.clone()).unwrap()
    };
    assert!(text("LICENSE").contains("Apache License"));
    assert!(
        text("LICENSE-GPL-2.0")
            .contains("GNU GENERAL PUBLIC LICENSE\n                       Version 2")
    );
    assert!(text("LICENSE-BSD-2-Clause").contains("2. Redistributions in binary form"));
    let programs = fs::read_dir(workspace::root().join("crates/sched-trace/bpf")).unwrap();
    let sources: Vec<_> = programs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "c" || end == "h"))
        .collect();
    assert!(sources.len() > 2, "{sources:?}");
    for path in sources {
        let first = fs::read_to_string(&path).unwrap().lines().next().unwrap().to_owned();
        let names = "SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause";
        assert!(first.contains(names), "{}: {first}", path.display());
    }
}

#[test]
fn helm_installs_the_chart_from_a_registry() {
    let folder = folder();
    let archive = release::chart_archive(folder.path());
    let layout = Layout::of(&fs::read(&archive).unwrap());
    let manifest = layout.json(&layout.1["manifests"][0]);
    let package = fs::read(folder.path().join("cpuwarden-0.1.0.tgz")).unwrap();
    assert_eq!(manifest["layers"][0]["digest"], format!("sha256:{}", sha256(&package)));
    assert_eq!(layout.json(&manifest["config"])["kubeVersion"], ">=1.27.0-0");

    let registry = Registry::start();
    let repository = format!("127.0.0.1:{}/team/cpuwarden/chart", registry.port);
    image::push(&archive, &repository, true).unwrap();
    let url = format!("oci://{repository}");
    let from_registry = ["show", "chart", &url, "--version=0.1.0", "--plain-http"];
    let shown = helm(&from_registry, folder.path());
    assert!(shown.contains("name: cpuwarden\n") && shown.contains("appVersion: 0.1.0"), "{shown}");
    let set = "--set=image.repository=r/c,profile=trace";
    let arguments = ["template", "cpuwarden", &url, "--version=0.1.0", "--plain-http", set];
    let rendered = helm(&[&arguments[..], &["--kube-version=1.37.0"]].concat(), folder.path());
    assert!(rendered.contains("add: [BPF, PERFMON]"), "{rendered}");
}

#[test]
fn the_bill_of_each_platform_names_licenses_and_hashes() {
    for platform in PLATFORMS {
        let bill: Value = serde_json::from_str(&image::bill(&source(), platform).unwrap()).unwrap();
        let components = bill["components"].as_array().unwrap();
        let of = |name: &str| components.iter().find(|component| component["name"] == name);
        assert_eq!(of("kube").unwrap()["hashes"][0]["content"].as_str().unwrap().len(), 64);
        let trace = of("sched-trace").unwrap()["licenses"].to_string();
        assert!(trace.contains("GPL-2.0-only OR BSD-2-Clause"), "{trace}");
        assert!(of("proptest").is_none(), "a dependency of tests alone");
        let whole = bill["metadata"]["component"]["licenses"].to_string();
        assert!(whole.contains("GPL-2.0-only OR BSD-2-Clause"), "{whole}");
    }
}
