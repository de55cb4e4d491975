//! The image: built for both platforms, run under emulation, pushed to a real registry. The files of
//! a release.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod registry;
mod release_folder;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use xtask::image::{
    self, Archive, Build, Content, Image, ImageCommand, Options, PLATFORMS, Platform, Source,
};
use xtask::{krew, release, workspace};

use registry::{Registry, succeeded};

fn source() -> Source {
    let created = "2026-01-02T03:04:05Z".to_owned();
    Source {
        root: workspace::root().to_owned(),
        revision: "abc".into(),
        epoch: 1_767_323_045,
        created,
    }
}

fn packed(program: &[u8]) -> Archive {
    let files = vec![("cpuwarden".to_owned(), 0o755, program.to_vec())];
    let contents = PLATFORMS.map(|platform| Content { platform, files: files.clone() });
    image::pack(&source(), "0.1.0", &ImageCommand::default(), &contents).unwrap()
}

/// Files of a tar archive with mode, owner, time and bytes.
fn entries(tar: &[u8]) -> BTreeMap<String, (u32, u64, u64, Vec<u8>)> {
    let mut archive = tar::Archive::new(tar);
    let entry = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let header = entry.header();
        let (mode, uid, mtime) =
            (header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap());
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, (mode, uid, mtime, bytes))
    };
    archive.entries().unwrap().map(entry).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Blobs of an archive by digest; each must match its digest.
struct Layout(BTreeMap<String, Vec<u8>>, Value);

impl Layout {
    fn of(archive: &[u8]) -> Self {
        let mut files = entries(archive);
        assert_eq!(files.remove("oci-layout").unwrap().3, br#"{"imageLayoutVersion":"1.0.0"}"#);
        let index = serde_json::from_slice(&files.remove("index.json").unwrap().3).unwrap();
        let blob = |(name, (.., bytes)): (String, (u32, u64, u64, Vec<u8>))| {
            let digest = name.strip_prefix("blobs/sha256/").unwrap().to_owned();
            assert_eq!(sha256(&bytes), digest);
            (format!("sha256:{digest}"), bytes)
        };
        Self(files.into_iter().map(blob).collect(), index)
    }

    fn blob(&self, descriptor: &Value) -> &[u8] {
        let bytes = &self.0[descriptor["digest"].as_str().unwrap()];
        assert_eq!(descriptor["size"].as_u64().unwrap(), bytes.len() as u64);
        bytes
    }

    fn json(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(self.blob(descriptor)).unwrap()
    }

    /// Configuration and uncompressed layer of a platform's image.
    fn image(&self, platform: Platform) -> (Value, Vec<u8>) {
        let index = self.json(&self.1["manifests"][0]);
        let manifests = index["manifests"].as_array().unwrap();
        let is_wanted =
            |manifest: &&Value| manifest["platform"]["architecture"] == platform.architecture();
        let manifest = self.json(manifests.iter().find(is_wanted).unwrap());
        let mut layer = Vec::new();
        GzDecoder::new(self.blob(&manifest["layers"][0])).read_to_end(&mut layer).unwrap();
        (self.json(&manifest["config"]), layer)
    }
}

#[test]
fn the_archive_is_a_reproducible_oci_layout() {
    let archive = packed(b"program");
    assert_eq!(archive.bytes, packed(b"program").bytes);
    assert_ne!(archive.digest, packed(b"another").digest);
    let layout = Layout::of(&archive.bytes);
    assert_eq!(layout.1["manifests"][0]["digest"], archive.digest);
    for platform in PLATFORMS {
        let (config, layer) = layout.image(platform);
        assert_eq!(config["architecture"], platform.architecture());
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
        assert_eq!(entries(&layer)["cpuwarden"], (0o755, 0, source().epoch, b"program".to_vec()));
    }
}

#[test]
fn the_dockerfile_makes_an_image_of_the_same_configuration() {
    let dockerfile = fs::read_to_string(workspace::root().join("Dockerfile")).unwrap();
    let value = |instruction: &str| {
        let line = dockerfile
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix(instruction)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {instruction}")).to_owned()
    };
    let (config, _) = Layout::of(&packed(b"program").bytes).image(Platform::Amd64);
    let config = &config["config"];
    assert_eq!(config["User"], value("USER"));
    assert_eq!(config["Entrypoint"], serde_json::from_str::<Value>(&value("ENTRYPOINT")).unwrap());
    assert_eq!(config["Cmd"], serde_json::from_str::<Value>(&value("CMD")).unwrap());
    assert!(config["ExposedPorts"][format!("{}/tcp", value("EXPOSE"))].is_object());
    for (name, text) in config["Labels"].as_object().unwrap() {
        let fixed = ["title", "description", "licenses"].iter().any(|end| name.ends_with(end));
        assert!(!fixed || dockerfile.contains(&format!("{name}={text}")), "{name}={text}");
    }
}

#[test]
fn the_krew_manifest_names_each_archive_with_its_digest() {
    let folder = TempDir::new().unwrap();
    let programs = PLATFORMS.map(|platform| (platform, format!("{platform}").into_bytes()));
    krew::complete(folder.path(), &source(), &programs, "https://example.com/v0.1.0").unwrap();
    let manifest = fs::read_to_string(folder.path().join("cpuwarden.krew.yaml")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(
        (&manifest["metadata"]["name"], &manifest["spec"]["version"]),
        (&"cpuwarden".into(), &"v0.1.0".into())
    );
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), programs.len());
    for (entry, (platform, program)) in platforms.iter().zip(&programs) {
        let labels = &entry["selector"]["matchLabels"];
        assert_eq!(
            (&labels["os"], &labels["arch"]),
            (&"linux".into(), &platform.architecture().into())
        );
        let (base, name) = entry["uri"].as_str().unwrap().rsplit_once('/').unwrap();
        assert_eq!(base, "https://example.com/v0.1.0");
        let archive = fs::read(folder.path().join(name)).unwrap();
        assert_eq!(entry["sha256"], sha256(&archive));
        let mut tar = Vec::new();
        GzDecoder::new(archive.as_slice()).read_to_end(&mut tar).unwrap();
        let files = entries(&tar);
        assert_eq!(
            files[entry["bin"].as_str().unwrap()],
            (0o755, 0, source().epoch, program.clone())
        );
        for license in image::licenses(&source()).unwrap() {
            assert_eq!(files[license.name].3, license.text);
        }
    }
}

/// Builds real images in the `dev` profile: compiles the agent for both platforms, and again for
/// arm64.
#[test]
#[ignore = "only in cargo xtask test --all: four builds, 11 minutes of CPU time"]
fn builds_of_both_platforms_are_static_and_reproducible() {
    let folder = TempDir::new().unwrap();
    let options =
        Options { output: folder.path().to_owned(), profile: "dev".into(), verify: false };
    let image = image::make(&options).unwrap();
    image.programs.iter().for_each(|(platform, program)| runs(*platform, program));
    let elsewhere = TempDir::new().unwrap();
    let copy = Source::checkout().unwrap().copy_to(&elsewhere.path().join("source")).unwrap();
    let target_dir = elsewhere.path().join("target");
    let again = Build { source: &copy, target_dir: &target_dir, profile: "dev", feature: None }
        .program(Platform::Arm64)
        .unwrap();
    let first =
        &image.programs.iter().find(|(platform, _)| *platform == Platform::Arm64).unwrap().1;
    assert!(
        fs::read(first).unwrap() == fs::read(again).unwrap(),
        "two builds from two folders differ"
    );
    has_bills(&image);
    let layout = Layout::of(&fs::read(&image.archive).unwrap());
    for (platform, program) in &image.programs {
        let files = entries(&layout.image(*platform).1);
        assert_eq!(files["cpuwarden"].3, fs::read(program).unwrap());
        for license in image::licenses(&source()).unwrap() {
            assert_eq!(files[license.name].3, license.text);
        }
    }

    let registry = Registry::start();
    let repository = format!("127.0.0.1:{}/team/cpuwarden", registry.port);
    image::push(&image.archive, &repository, true).unwrap();
    assert_eq!(registry.digest(&repository), image.digest);

    release::complete(folder.path(), &Source::checkout().unwrap(), &repository, &image.digest)
        .unwrap();
    let mut sha256sum = Command::new("sha256sum");
    let checked =
        succeeded(sha256sum.args(["--check", "--strict", release::CHECKSUMS]).current_dir(&folder));
    for name in [
        "cpuwarden-0.1.0.oci.tar",
        "cpuwarden-0.1.0.tgz",
        "cpuwarden-0.1.0-arm64.cdx.json",
        "trace.yaml",
    ] {
        assert!(checked.contains(&format!("{name}: OK")), "{checked}");
    }
    let manifest = fs::read_to_string(folder.path().join("trace.yaml")).unwrap();
    assert!(manifest.contains(&format!("image: \"{repository}@{}\"", image.digest)), "{manifest}");
}

/// Asserts that the program has no interpreter and no paths of this machine, and that it runs on
/// its platform.
fn runs(platform: Platform, program: &Path) {
    let bytes = fs::read(program).unwrap();
    let contains = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(!contains(b"/ld-linux"), "{platform} is not static");
    assert!(
        !contains(workspace::root().as_os_str().as_encoded_bytes()),
        "{platform} holds the path of the checkout"
    );
    let run = |arguments: &[&str]| {
        let mut command = match platform {
            Platform::Amd64 => Command::new(program),
            Platform::Arm64 => Command::new("qemu-aarch64-static"),
        };
        if platform == Platform::Arm64 {
            command.arg(program);
        }
        succeeded(command.args(arguments))
    };
    assert!(run(&["--version"]).starts_with("cpuwarden 0.1.0"));
    assert!(run(&["reference", "metrics"]).contains("cpuwarden_container_throttled_seconds_total"));
}

fn has_bills(image: &Image) {
    for bill in &image.bills {
        let bill: Value = serde_json::from_slice(&fs::read(bill).unwrap()).unwrap();
        let components = bill["components"].as_array().unwrap();
        let kube = components.iter().find(|component| component["name"] == "kube").unwrap();
        assert_eq!(kube["hashes"][0]["content"].as_str().unwrap().len(), 64);
        assert!(
            !components.iter().any(|component| component["name"] == "proptest"),
            "a dependency of tests alone"
        );
    }
}
