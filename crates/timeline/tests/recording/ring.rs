//! The ring on disk: bounded size, crashes, directories that cannot be written.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::node::{Node, START_MS, origin};
use api::{ContainerFrame, Frame, Interference, PodName, Rates};
use timeline::recording::{Error, LEAST_SIZE, Recording, Ring, RingConfig, earliest_ms};

fn open(dir: &Path, limit: u64) -> Result<Ring, Error> {
    Ring::open(RingConfig::new(dir.to_owned(), limit), origin())
}

/// A second of three pods, one of which waits for another.
fn small(second: u64) -> Frame {
    let name = |pod: &str| PodName { namespace: "shop".to_owned(), pod: pod.to_owned() };
    let row = |pod: &str, used: f64| ContainerFrame {
        namespace: "shop".to_owned(),
        pod: pod.to_owned(),
        rates: Rates { usage_cores: Some(used), neighbor: Some(0.5), ..Rates::default() },
        ..ContainerFrame::default()
    };
    // A second of use in every other one.
    let used = (second % 2) as f64;
    let wait = Interference { victim: name("web"), aggressor: name("hog"), wait: 0.5 };
    Frame {
        at_ms: START_MS + 1000 * second,
        seconds: 1.0,
        containers: vec![row("hog", used), row("idle", 0.0), row("web", 1.0)],
        interference: vec![wait],
        ..Frame::default()
    }
}

fn thinned(dir: &Path, limit: u64) -> Ring {
    Ring::open(RingConfig::new(dir.to_owned(), limit).thinned().without_sync(), origin())
        .expect("the ring opens")
}

#[test]
fn the_last_hour_is_complete_and_earlier_times_are_means() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = thinned(dir.path(), 16 * LEAST_SIZE);
    let last = 3 * 3600 + 17;
    (1..=last).for_each(|second| ring.append(&small(second)).unwrap());
    let mut recording = Recording::open(dir.path()).unwrap();
    let times: Vec<u64> = recording.times().iter().map(|at| (at - START_MS) / 1000).collect();
    assert!(times.is_sorted() && times.first() == Some(&10) && times.last() == Some(&last));
    let full = times.windows(2).position(|pair| pair[1] == pair[0] + 1).unwrap();
    assert!((last - 3600 - 120..=last - 3600).contains(&times[full]), "{}", times[full]);
    assert!(times[..=full].windows(2).all(|pair| pair[1] == pair[0] + 10), "a gap");
    assert!(times[full..].windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap");
    // Nothing is counted twice, and nothing is lost.
    let mut waited = 0.0;
    let mut used = 0.0;
    let mut take = |frame: Frame| {
        waited += frame.interference[0].wait * frame.seconds;
        used += frame.containers[0].rates.usage_cores.unwrap() * frame.seconds;
    };
    recording.each_between(0, u64::MAX, &mut take).unwrap();
    assert!((waited / (last as f64 / 2.0) - 1.0).abs() < 0.001, "{waited}");
    assert!((used / (last as f64 / 2.0) - 1.0).abs() < 0.001, "{used}");
    let mean = recording.frame(5).unwrap().unwrap();
    assert!((mean.seconds - 10.0).abs() < 1e-6, "{}", mean.seconds);
    let mut lost = 0.0;
    recording.each_total(0, u64::MAX, |total| lost += total.lost * total.seconds).unwrap();
    assert!((lost / (last as f64 * 1.5) - 1.0).abs() < 0.001, "{lost}");
}

#[test]
fn a_part_of_a_directory_is_read_without_the_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = thinned(dir.path(), 16 * LEAST_SIZE);
    (1..=7200).for_each(|second| ring.append(&small(second)).unwrap());
    assert_eq!(earliest_ms(dir.path()), Some(START_MS + 10_000));
    for (after, until, most) in [(600, 1200, 400), (3000, 4000, 1700), (7000, 7200, 500)] {
        let [after_ms, until_ms] = [after, until].map(|second| START_MS + 1000 * second);
        let all = Recording::open(dir.path()).unwrap().between(after_ms, until_ms).unwrap();
        let mut part = Recording::open_between(dir.path(), after_ms, until_ms).unwrap();
        assert_eq!(part.between(after_ms, until_ms).unwrap(), all);
        let mut each = Vec::new();
        part.each_between(after_ms, until_ms, |frame| each.push(frame)).unwrap();
        assert_eq!(each, all);
        assert!(part.times().len() <= most, "{} frames", part.times().len());
    }
    let before = Recording::open_between(dir.path(), START_MS - 2000, START_MS - 1000);
    assert!(matches!(before.err().unwrap(), Error::NoRecording(_)));
}

#[test]
fn a_small_ring_keeps_means_before_its_last_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = thinned(dir.path(), LEAST_SIZE);
    let mut node = Node::new(2);
    for _ in 0..900 {
        ring.append(&node.frame()).unwrap();
        let size = size(dir.path());
        assert!(size <= LEAST_SIZE && size == ring.size(), "{size}");
    }
    let times = Recording::open(dir.path()).unwrap().times().to_vec();
    let steps: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).collect();
    // A mean is shorter where a file ends.
    let means = steps.iter().take_while(|step| (2..=10).contains(*step)).count();
    assert!(means > 20 && steps[means..].iter().all(|step| *step == 1), "{steps:?}");
    assert_eq!(times[0], START_MS + 10_000, "means were removed before seconds");
}

#[test]
fn a_day_of_250_busy_pods_fits_into_250_mib() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = thinned(dir.path(), 250 << 20);
    let mut node = Node::new(1).with_aggressors(5);
    let frames = 240;
    record(&mut ring, &mut node, frames);
    let of = |is_thinned: bool| {
        let entries = fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
        let wanted = entries.filter(|entry| {
            entry.file_name().to_string_lossy().starts_with("thinned-") == is_thinned
        });
        wanted.map(|entry| entry.metadata().unwrap().len()).sum::<u64>() as f64
    };
    // A segment of 24 means has all names, as one of 120 has.
    let day = of(false) / frames as f64 * 3720.0 + of(true) / (frames / 10) as f64 * 8640.0;
    println!("{:.0} MiB", day / f64::from(1 << 20));
    assert!(day < f64::from(250 << 20), "{day} bytes");
}

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
    let mut ring = open(dir.path(), LEAST_SIZE).unwrap();
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
    let mut ring = open(dir.path(), 4 * LEAST_SIZE).unwrap();
    record(&mut ring, &mut node, 900);
    assert!(ring.size() > LEAST_SIZE, "{}", ring.size());
    drop(ring);
    // Left by a crash, in the middle of a record.
    fs::write(dir.path().join("0000000099.cpuwarden"), b"CPUWREC\n\x01\0\0").unwrap();
    let mut ring = open(dir.path(), LEAST_SIZE).unwrap();
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
    let mut ring = open(dir.path(), LEAST_SIZE).unwrap();
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
        let mut ring = open(dir.path(), LEAST_SIZE).unwrap();
        record(&mut ring, &mut node, 2);
        assert_eq!(Recording::open(dir.path()).unwrap().times().len(), 2 * round);
    }
    assert!(pipe.exists(), "it is not ours");
}

#[test]
fn a_second_recorder_is_rejected_until_the_first_ends() {
    let dir = tempfile::tempdir().unwrap();
    let ring = open(dir.path(), LEAST_SIZE).unwrap();
    let error = open(dir.path(), LEAST_SIZE).err().unwrap();
    assert!(matches!(error, Error::InUse(_)), "{error}");
    drop(ring);
    assert!(open(dir.path(), LEAST_SIZE).is_ok());
}

#[test]
fn recording_continues_in_a_new_segment_after_a_failed_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut ring = open(&path, LEAST_SIZE).unwrap();
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
    let mut ring = open(Path::new(&dir), LEAST_SIZE).unwrap();
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
    assert!(open(dir.path(), LEAST_SIZE).is_ok(), "the lock remains");
}
