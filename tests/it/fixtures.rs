//! Recorded nodes: the archives in `tests/fixtures`, and those in the directory
//! `CPUWARDEN_RECORDINGS`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use tempfile::TempDir;

/// An unpacked recorded node. Contents: `tests/fixtures/README.md`.
pub(crate) struct Recording {
    /// File name of the archive or directory.
    pub(crate) name: String,
    /// Directory with `cgroup-t0`, `pods.json`, `containers.tsv` and the rest.
    pub(crate) path: PathBuf,
    /// Whether the recording is from the source tree, not from `CPUWARDEN_RECORDINGS`.
    pub(crate) own: bool,
    _unpacked: Option<TempDir>,
}

/// All recordings, those of the source tree first.
pub(crate) fn recordings() -> Vec<Recording> {
    let mut all = in_directory(&own_directory(), true);
    if let Some(further) = std::env::var_os("CPUWARDEN_RECORDINGS") {
        let found = in_directory(Path::new(&further), false);
        assert!(
            !found.is_empty(),
            "CPUWARDEN_RECORDINGS={}: no recording there",
            further.display()
        );
        all.extend(found);
    }
    all
}

/// A recording of the source tree.
pub(crate) fn recording(name: &str) -> Recording {
    let path = own_directory().join(format!("{name}.tar.gz"));
    open(&path, true).unwrap_or_else(|| panic!("no archive {}", path.display()))
}

fn own_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn in_directory(directory: &Path, own: bool) -> Vec<Recording> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| open(path, own)).collect()
}

fn open(path: &Path, own: bool) -> Option<Recording> {
    let file_name = path.file_name().unwrap().to_str().unwrap();
    if let Some(name) = file_name.strip_suffix(".tar.gz") {
        let unpacked = TempDir::new().unwrap();
        let archive = GzDecoder::new(File::open(path).unwrap());
        tar::Archive::new(archive).unpack(unpacked.path()).unwrap();
        let path = unpacked.path().join(name);
        return Some(Recording { name: name.into(), path, own, _unpacked: Some(unpacked) });
    }
    let is_recording = path.join("containers.tsv").exists();
    is_recording.then(|| Recording {
        name: file_name.into(),
        path: path.into(),
        own,
        _unpacked: None,
    })
}

#[test]
fn every_archive_unpacks_to_a_node() {
    let recordings = in_directory(&own_directory(), true);
    let names: Vec<_> = recordings.iter().map(|recording| recording.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "cluster-v2-systemd",
            "guest-v2-cgroupfs",
            "guest-v2-static",
            "host-v1-apiserver",
            "host-v1-cgroupfs"
        ]
    );
    for Recording { name, path, .. } in &recordings {
        for entry in ["README.md", "cgroup-t0", "containers.tsv", "pods.json", "proc"] {
            assert!(path.join(entry).exists(), "{name} has no {entry}");
        }
    }
}

#[test]
fn further_recordings_may_be_directories_or_archives() {
    let further = TempDir::new().unwrap();
    fs::copy(
        own_directory().join("host-v1-cgroupfs.tar.gz"),
        further.path().join("host-v1-cgroupfs.tar.gz"),
    )
    .unwrap();
    fs::create_dir(further.path().join("another")).unwrap();
    fs::write(further.path().join("another/containers.tsv"), "").unwrap();
    fs::create_dir(further.path().join("no-recording")).unwrap();
    fs::write(further.path().join("README.md"), "").unwrap();
    let found = in_directory(further.path(), false);
    assert_eq!(
        found.iter().map(|recording| recording.name.as_str()).collect::<Vec<_>>(),
        ["another", "host-v1-cgroupfs"]
    );
    assert!(
        found
            .iter()
            .all(|recording| recording.path.join("containers.tsv").exists() && !recording.own)
    );
}
