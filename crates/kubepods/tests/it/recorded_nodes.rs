//! Grammar and join on recordings of real nodes (`tests/fixtures` of the repository). The runtime's
//! own list of containers (`containers.tsv`) is the expected result for paths and `/pods`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use kubepods::path::{CgroupPath, parse, split};
use kubepods::{Lookup, PodIndex, read_pod_list};
use tar::Archive;

const NODES: [&str; 5] = [
    "cluster-v2-systemd",
    "guest-v2-cgroupfs",
    "guest-v2-static",
    "host-v1-apiserver",
    "host-v1-cgroupfs",
];

/// Containers in the runtime's list without an id in `/pods`, which was read a moment earlier: the
/// ids lag behind the cgroups.
const NOT_YET_LISTED: [&str; 2] = ["sidecar-rig-guest/app", "sidecar-rig-guest/mesh"];

/// A sandbox that outlived its pod.
const LEFT_OVER: (&str, &str) = ("host-v1-apiserver", "guaranteed-rig-host");

struct Recording {
    index: PodIndex,
    rows: Vec<Row>,
    directories: BTreeSet<PathBuf>,
}

struct Row {
    id: String,
    is_sandbox: bool,
    uid: String,
    pod: String,
    container: String,
    path: String,
}

fn recording(node: &str) -> Recording {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/{node}.tar.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = Archive::new(GzDecoder::new(file));
    let mut found =
        Recording { index: PodIndex::default(), rows: Vec::new(), directories: BTreeSet::new() };
    for entry in archive.entries().expect("a tar archive") {
        let mut entry = entry.expect("a whole archive");
        let path =
            entry.path().expect("a path").strip_prefix(node).expect("one directory").to_owned();
        if entry.header().entry_type().is_dir() {
            found.directories.insert(path);
        } else if path == Path::new("pods.json") {
            let pods = read_pod_list(entry).expect("a pod list");
            found.index = PodIndex::build(&found.index, pods, []);
        } else if path == Path::new("containers.tsv") {
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            found.rows = text.lines().filter_map(row).collect();
        }
    }
    assert!(
        !found.rows.is_empty() && !found.index.pods().is_empty(),
        "{node} lacks containers.tsv or pods.json"
    );
    found
}

/// Parses one line; `None` for a container that was gone before the recorder read more than its id.
fn row(line: &str) -> Option<Row> {
    let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let [id, kind, _, uid, pod, container, path] = fields.try_into().expect("seven columns");
    (!kind.is_empty()).then(|| Row { id, is_sandbox: kind == "sandbox", uid, pod, container, path })
}

#[test]
fn every_recorded_container_is_named_and_no_sandbox_is() {
    for node in NODES {
        let recording = recording(node);
        let mut named = 0;
        for row in &recording.rows {
            let relative = split(&row.path).expect("below kubepods").relative;
            let Some(CgroupPath::Container(cgroup)) = parse(relative) else {
                panic!("{node}: {}", row.path)
            };
            assert_eq!((&*cgroup.pod.uid, &*cgroup.id), (&*row.uid, &*row.id), "{node}");
            let who = format!("{}/{}", row.pod, row.container);
            match recording.index.container(&row.uid, &row.id) {
                Lookup::Named { pod, container } if !row.is_sandbox => {
                    assert_eq!(
                        (&*pod.name, &*container.name),
                        (&*row.pod, &*row.container),
                        "{node}"
                    );
                    assert_eq!(pod.qos_class, Some(cgroup.pod.qos), "{node}: {who}");
                    named += 1;
                }
                Lookup::Unlisted { pod } if row.is_sandbox => assert_eq!(&*pod.name, row.pod),
                // Left over from a pod that the kubelet no longer knows.
                Lookup::UnknownPod if row.is_sandbox => assert_eq!((node, &*row.pod), LEFT_OVER),
                Lookup::Unlisted { .. } => {
                    assert!(NOT_YET_LISTED.contains(&&*who), "{node}: {who} is not listed");
                }
                other => panic!("{node}: {who} (sandbox: {}) is {other:?}", row.is_sandbox),
            }
        }
        assert!(named >= 10, "{node}: only {named} named");
    }
}

#[test]
fn every_recorded_path_parses_and_prints_unchanged() {
    for node in NODES {
        let recording = recording(node);
        let mut seen = 0;
        for directory in &recording.directories {
            let text = directory.to_str().expect("UTF-8").trim_end_matches('/');
            let Some(found) = split(text).filter(|found| !found.relative.is_empty()) else {
                continue;
            };
            let path = parse(found.relative).unwrap_or_else(|| panic!("{node}: {text}"));
            assert_eq!(path.to_string(), found.relative);
            seen += 1;
        }
        assert!(seen > 50, "{node}: only {seen} cgroups");
    }
}
