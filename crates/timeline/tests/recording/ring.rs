//! The ring on disk: bounded size, crashes, directories that cannot be written.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::node::{Node, START_MS, origin};
use timeline::recording::{Error, LEAST_SIZE, Recording, Ring};

fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the directory exists").filter_map(Result::ok);
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

fn record(ring: &mut Ring, node: &mut Node, frames: usize) {
    for _ in 0..frames {
        ring.append(&node.frame()).expect("the directory can be written");
    }
}

#[test]
fn the_size_stays_below_the_limit_and_the_latest_frames_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = Ring::open(dir.path(), LEAST_SIZE, origin()).unwrap();
    let mut node = Node::new(2);
    for _ in 0..900 {
        ring.append(&node.frame()).unwrap();
        let size = size(dir.path());
        assert!(size <= LEAST_SIZE && size == ring.size(), "{size}");
    }
    let recording = Recording::open(dir.path()).unwrap();
    let times = recording.times();
    assert_eq!(times.last(), Some(&(START_MS + 900_000)));
    assert!(times.len() < 900, "nothing was removed");
    // At most one eighth is lost to the removal of a file.
    assert!(ring.size() > LEAST_SIZE * 3 / 4, "{}", ring.size());
    assert!(times.windows(2).all(|pair| pair[1] == pair[0] + 1000), "a gap");
}

#[test]
fn a_smaller_limit_removes_the_oldest_segments_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new(2);
    let mut ring = Ring::open(dir.path(), 4 * LEAST_SIZE, origin()).unwrap();
    record(&mut ring, &mut node, 900);
    assert!(ring.size() > LEAST_SIZE, "{}", ring.size());
    drop(ring);
    // Left by a crash, in the middle of a record.
    fs::write(dir.path().join("0000000099.cpuwarden"), b"CPUWREC\n\x01\0\0").unwrap();
    let mut ring = Ring::open(dir.path(), LEAST_SIZE, origin()).unwrap();
    assert!(size(dir.path()) <= LEAST_SIZE);
    record(&mut ring, &mut node, 1);
    assert!(dir.path().join("0000000100.cpuwarden").exists(), "not after the last file");
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.times().last(), Some(&(START_MS + 901_000)));
}

#[test]
fn other_files_in_the_directory_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), vec![b'x'; 2 << 20]).unwrap();
    let mut ring = Ring::open(dir.path(), LEAST_SIZE, origin()).unwrap();
    record(&mut ring, &mut Node::new(2), 3);
    assert!(dir.path().join("notes.txt").exists());
    assert_eq!(Recording::open(dir.path()).unwrap().times().len(), 3);
}

#[test]
fn foreign_files_with_the_name_of_a_segment_stop_no_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new(2);
    fs::write(dir.path().join(format!("{}.cpuwarden", u64::MAX)), "").unwrap();
    fs::write(dir.path().join("1000000000000000.cpuwarden"), "").unwrap();
    let pipe = dir.path().join("0000000001.cpuwarden");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for round in 1..=3 {
        let mut ring = Ring::open(dir.path(), LEAST_SIZE, origin()).unwrap();
        record(&mut ring, &mut node, 2);
        assert_eq!(Recording::open(dir.path()).unwrap().times().len(), 2 * round);
    }
    assert!(pipe.exists(), "it is not ours");
}

#[test]
fn a_second_recorder_is_rejected_until_the_first_ends() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Ring::open(dir.path(), LEAST_SIZE, origin()).unwrap();
    let error = Ring::open(dir.path(), LEAST_SIZE, origin()).err().unwrap();
    assert!(matches!(error, Error::InUse(_)), "{error}");
    drop(ring);
    assert!(Ring::open(dir.path(), LEAST_SIZE, origin()).is_ok());
}

#[test]
fn recording_continues_in_a_new_segment_after_a_failed_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut ring = Ring::open(&path, LEAST_SIZE, origin()).unwrap();
    let mut node = Node::new(2);
    record(&mut ring, &mut node, 2);
    fs::remove_dir_all(&path).unwrap();
    // At the latest when the segment is full, the next frame needs another file.
    let error = (0..120).find_map(|_| ring.append(&node.frame()).err()).unwrap();
    assert!(error.to_string().contains("removed"), "{error}");
    fs::create_dir(&path).unwrap();
    record(&mut ring, &mut node, 2);
    assert_eq!(Recording::open(&path).unwrap().times().len(), 2);
}

#[test]
fn a_full_disk_is_an_error_and_what_was_written_is_read() {
    // The maximum size of a file stands for the disk's: the write fails in the middle of a record.
    let dir = tempfile::tempdir().unwrap();
    // With the signal ignored, the write fails with an error.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec prlimit --fsize=40000 -- \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["ring::record_until_it_fails", "--exact", "--ignored", "--nocapture"])
        .env("RING", dir.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let failed = output.lines().find_map(|line| line.split_once("failed after ")).unwrap();
    let frames: usize = failed.1.split_once(": cannot write").unwrap().0.parse().unwrap();
    let mut recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.times().len(), frames);
    assert!(recording.frame(frames - 1).unwrap().is_some());
}

/// Runs in a process of its own.
#[test]
#[ignore = "started by other tests"]
fn record_until_it_fails() {
    let dir = std::env::var_os("RING").unwrap();
    let mut ring = Ring::open(Path::new(&dir), LEAST_SIZE, origin()).unwrap();
    let mut node = Node::new(2);
    for frames in 0..1_000_000 {
        if let Err(error) = ring.append(&node.frame()) {
            println!("\nfailed after {frames}: {error}");
            return;
        }
        println!("\nrecorded {frames}");
    }
}

#[test]
fn a_killed_recorder_loses_no_frame_that_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["ring::record_until_it_fails", "--exact", "--ignored", "--nocapture"])
        .env("RING", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut recorded = lines.filter_map(|line| line.strip_prefix("recorded ")?.parse::<u64>().ok());
    let last = recorded.nth(40).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut recording = Recording::open(dir.path()).unwrap();
    let times = recording.times();
    assert!(*times.last().unwrap() >= START_MS + 1000 * (last + 1));
    let count = times.len();
    assert!((0..count).all(|number| recording.frame(number).unwrap().is_some()));
    assert!(Ring::open(dir.path(), LEAST_SIZE, origin()).is_ok(), "the lock remains");
}
