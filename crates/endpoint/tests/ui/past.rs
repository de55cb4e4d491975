//! Windows of which a part is in memory, and the rest in the recording, or nowhere.

use crate::api::{ago, recorded, seconds};
use crate::support::Server;

/// Calls whose windows begin before the agent did.
const CALLS: [&str; 7] = [
    "frame?seconds=60",
    "pods?seconds=60",
    "pods/uid-1?seconds=600",
    "overview?seconds=600",
    "overview?seconds=7200",
    "history?seconds=600&until=1700000010000",
    "recording?seconds=600",
];

/// The disk is nearly full, or the directory cannot be written.
#[test]
fn the_history_in_memory_needs_no_recording() {
    let dir = tempfile::tempdir().unwrap();
    let (empty, noise) = (dir.path().join("empty"), dir.path().join("noise"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir(&noise).unwrap();
    std::fs::write(noise.join("0000000001.cpuwarden"), "noise").unwrap();
    for path in [dir.path().join("none"), empty, noise] {
        let server = Server::start_recorded(3, &path).ten_seconds();
        for call in CALLS {
            let (head, _) = server.get_bytes(&format!("/api/v1/{call}"), "Accept: */*");
            assert!(head.contains(" 200 "), "{call} with {}: {head}", path.display());
        }
        assert_eq!(seconds(&server, "seconds=600"), (1..=10).collect::<Vec<_>>());
        let (status, _, body) = server.get(&format!("/api/v1/frame?{}", ago(1000)));
        assert!(status == 404 && body.contains("to 2023-11-14T22:13:30Z"), "{status} {body}");
    }
}

#[test]
fn a_window_continues_from_the_recording_into_memory() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let server = Server::start_recorded(3, dir.path()).ten_seconds();
    assert_eq!(seconds(&server, "seconds=60"), (-49..=10).collect::<Vec<_>>());
    let frame = server.json("/api/v1/frame?seconds=60");
    let pods: Vec<&str> = frame["containers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["pod"].as_str())
        .collect();
    assert!(pods.contains(&"old") && pods.len() > 1, "{pods:?}");
    let (status, _, body) = server.get(&format!("/api/v1/frame?{}", ago(90_000)));
    let range = "the history has 2023-11-14T20:1";
    assert!(status == 404 && body.contains(range), "{status} {body}");
    assert!(
        body.contains("to 2023-11-14T22:13:30Z"),
        "the end is that of the latest frame: {body}"
    );
}
