//! Recordings as files: reading back, damage, other versions.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::node::{Node, START_MS, origin};
use api::{Colocation, ContainerFrame, Contention, Frame, Measure, PodName, Rates, Verdict};
use proptest::prelude::*;
use timeline::recording::{Error, Recording, encode};
use timeline::{pack, unpack};

/// The value as it is read back: with three digits.
fn kept(value: Option<f64>) -> Option<f64> {
    unpack(pack(value))
}

/// The frame as it is read back.
fn as_recorded(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    frame.node.pressure = kept(frame.node.pressure);
    frame.node.steal = kept(frame.node.steal);
    let Contention { node, guaranteed, burstable, best_effort } = &mut frame.node.contention;
    for bounds in [node, guaranteed, burstable, best_effort].into_iter().flatten() {
        for bound in [&mut bounds.lower, &mut bounds.upper] {
            *bound = kept(Some(*bound)).unwrap_or_default();
        }
    }
    frame.node.cpus.iter_mut().for_each(|cpu| cpu.busy = kept(cpu.busy));
    for row in &mut frame.containers {
        for measure in Measure::ALL.into_iter().filter(|of| *of != Measure::LimitCores) {
            let value = kept(measure.of(&row.rates, None));
            measure.set(row, value);
        }
    }
    frame.containers.sort_by(|a, b| {
        (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container))
    });
    for pair in &mut frame.interference {
        pair.wait = kept(Some(pair.wait)).unwrap_or_default();
    }
    frame.interference.sort_by(|a, b| {
        let names = || (&a.victim, &a.aggressor).cmp(&(&b.victim, &b.aggressor));
        b.wait.total_cmp(&a.wait).then_with(names)
    });
    frame
}

fn frames(busy_every: usize, count: usize) -> Vec<Frame> {
    let mut node = Node::new(busy_every);
    (0..count).map(|_| node.frame()).collect()
}

#[test]
fn verdicts_are_read_back_as_they_were_said() {
    let verdict = |seconds: u32| Verdict {
        victim: PodName { namespace: "shop".into(), pod: "checkout".into() },
        slowed_seconds: f64::from(seconds),
        share: 0.625,
        summary: "slowed ×2.7 by batch/report".into(),
        ..Verdict::default()
    };
    let mut frames = frames(10, 5);
    for (number, frame) in (0..).zip(&mut frames) {
        frame.verdicts = (0..number % 3).map(|at| verdict(number + at)).collect();
    }
    let bytes = encode(frames.iter().cloned(), &origin()).unwrap();
    let read: Vec<_> = read(&bytes).unwrap().into_iter().map(|frame| frame.verdicts).collect();
    let written: Vec<_> = frames.into_iter().map(|frame| frame.verdicts).collect();
    assert_eq!(read, written);
}

/// All frames of a file with these bytes.
fn read(bytes: &[u8]) -> Result<Vec<Frame>, Error> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("recording");
    fs::write(&path, bytes).expect("a temporary file");
    read_path(&path)
}

fn read_path(path: &Path) -> Result<Vec<Frame>, Error> {
    let mut recording = Recording::open(path)?;
    let count = recording.times().len();
    (0..count).filter_map(|number| recording.frame(number).transpose()).collect()
}

/// A few rows, so that a test can damage each byte.
fn small(count: usize) -> Vec<Frame> {
    let mut frames = frames(3, count);
    for frame in &mut frames {
        frame.containers.truncate(4);
        frame.node.cpus.truncate(2);
        frame.interference.truncate(1);
    }
    frames
}

#[test]
fn all_frames_are_read_back_with_three_digits() {
    // More than two segments.
    let frames = frames(7, 300);
    let bytes = encode(&frames, &origin()).unwrap();
    let read = read(&bytes).unwrap();
    assert_eq!(read.len(), frames.len());
    for (read, frame) in read.iter().zip(&frames) {
        assert_eq!(*read, as_recorded(frame));
    }
}

#[test]
fn containers_that_come_and_go_are_read_back() {
    let mut frames = small(90);
    for (at, frame) in frames.iter_mut().enumerate() {
        // Absent for longer than the writer remembers, then present again; a new pod each frame.
        if (10..70).contains(&at) {
            frame.containers.remove(2);
        }
        frame.containers[0].pod = format!("new-{at}");
        frame.containers[1].limit_cores = Some(at as f64 / 4.0);
    }
    let read = read(&encode(&frames, &origin()).unwrap()).unwrap();
    assert_eq!(read, frames.iter().map(as_recorded).collect::<Vec<_>>());
}

#[test]
fn a_frame_is_found_by_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording");
    fs::write(&path, encode(small(200), &origin()).unwrap()).unwrap();
    let mut recording = Recording::open(&path).unwrap();
    for (at_ms, expected) in
        [(0, 0), (START_MS + 1000, 0), (START_MS + 150_999, 149), (u64::MAX, 199)]
    {
        assert_eq!(recording.position(at_ms), expected, "{at_ms}");
    }
    let frame = recording.frame(149).unwrap().unwrap();
    assert_eq!(frame.at_ms, START_MS + 150_000);
    assert_eq!(recording.frame(0).unwrap().unwrap().at_ms, START_MS + 1000);
    assert!(recording.frame(200).unwrap().is_none());
    assert_eq!(recording.origin(3), Some(&origin()));
    assert_eq!(recording.span(), (START_MS + 1000, START_MS + 200_000));
    // Across the end of a segment.
    let between = recording.between(START_MS + 119_000, START_MS + 121_500).unwrap();
    let times: Vec<u64> = between.iter().map(|frame| frame.at_ms).collect();
    assert_eq!(times, [START_MS + 120_000, START_MS + 121_000]);
}

#[test]
fn a_recording_cut_at_any_byte_has_all_complete_frames_before_it() {
    let frames = small(10);
    let bytes = encode(&frames, &origin()).unwrap();
    let expected: Vec<Frame> = frames.iter().map(as_recorded).collect();
    let mut longest = 0;
    for end in 0..bytes.len() {
        match read(&bytes[..end]) {
            Ok(read) => {
                assert!(read.len() >= longest && read.len() < frames.len(), "cut at {end}");
                assert_eq!(read, expected[..read.len()], "cut at {end}");
                longest = read.len();
            }
            Err(Error::NotARecording(_) | Error::Damaged(_) | Error::NoFrame(_)) => {
                assert_eq!(longest, 0);
            }
            Err(error) => panic!("cut at {end}: {error}"),
        }
    }
    assert_eq!(longest, frames.len() - 1);
}

#[test]
fn a_flipped_bit_anywhere_never_changes_a_frame() {
    let frames = small(10);
    let bytes = encode(&frames, &origin()).unwrap();
    let expected: Vec<Frame> = frames.iter().map(as_recorded).collect();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let Ok(read) = read(&damaged) else { continue };
        assert!(read.len() < frames.len(), "the damage at {at} was not detected");
        for frame in read {
            let original = expected.iter().find(|expected| expected.at_ms == frame.at_ms);
            assert_eq!(Some(&frame), original, "damage at {at}");
        }
    }
}

#[test]
fn segments_after_a_damaged_one_are_read_and_the_gap_is_reported() {
    let frames = small(360);
    let mut bytes = encode(&frames, &origin()).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording");
    fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    let times = recording.times();
    assert_eq!(times.last(), Some(&(START_MS + 360_000)));
    assert!(times.len() >= 240 && times.len() < 360, "{}", times.len());
    let [note] = recording.notes() else { panic!("{:?}", recording.notes()) };
    assert!(note.at <= at && at < note.at + note.length, "{note:?}");
}

/// Position of the version in a header.
const VERSION_AT: usize = 8;

#[test]
fn a_later_version_is_rejected_with_both_versions() {
    let bytes = include_bytes!("fixtures/version-99.cpuwarden");
    assert_eq!(bytes[VERSION_AT], 99);
    let error = read(bytes).unwrap_err();
    assert!(matches!(error, Error::Newer { version: 99, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("format version 99, written by cpuwarden 7.0.0"), "{text}");
    assert!(text.contains("use a later cpuwarden"), "{text}");
}

/// The frames of the fixture, which is older than contention and co-location.
fn version_1() -> Vec<Frame> {
    let mut frames: Vec<Frame> = small(3).iter().map(as_recorded).collect();
    for frame in &mut frames {
        frame.node.contention = Contention::default();
        frame.node.colocation = Colocation::default();
    }
    frames
}

#[test]
fn a_recording_of_version_1_can_be_read() {
    assert_eq!(read(include_bytes!("fixtures/version-1.cpuwarden")).unwrap(), version_1());
}

/// Writes the fixtures. Only for a new version of the format: add a file, and keep the old ones.
#[test]
#[ignore = "writes files"]
fn write_fixtures() {
    let bytes = encode(version_1(), &origin()).unwrap();
    fs::write("tests/recording/fixtures/version-1.cpuwarden", bytes).unwrap();
    let json = br#"{"agent":"7.0.0","node":"node-1"}"#;
    let (version, length) = (99_u32.to_le_bytes(), (json.len() as u32).to_le_bytes());
    let mut sum = flate2::Crc::new();
    [&b"CPUWREC\n"[..], &version, &length, json].iter().for_each(|part| sum.update(part));
    let header = [&b"CPUWREC\n"[..], &version, &length, &sum.sum().to_le_bytes(), json].concat();
    fs::write("tests/recording/fixtures/version-99.cpuwarden", header).unwrap();
}

#[test]
fn other_files_and_empty_directories_are_errors_that_say_so() {
    let text = read(b"GIF89a").unwrap_err().to_string();
    assert!(text.contains("is not a recording of cpuwarden; name a file"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let text = read_path(dir.path()).unwrap_err().to_string();
    assert!(text.contains("contains no recording"), "{text}");
    let text = read_path(&dir.path().join("none")).unwrap_err().to_string();
    assert!(text.contains("cannot open") && text.contains("No such file"), "{text}");
    let no_frame = encode(Vec::<Frame>::new(), &origin()).unwrap();
    let text = read(&no_frame).unwrap_err().to_string();
    assert!(text.contains("no complete frame"), "{text}");
}

fn value() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(prop_oneof![Just(0.0), 1e-6..1e6])
}

prop_compose! {
    fn container()(
        text in ["[a-c]", "[a-c]", ".{0,3}", "[ab]"],
        millicores in proptest::option::of(0_u32..64_000),
        values in proptest::collection::vec(value(), 9),
    ) -> ContainerFrame {
        let [namespace, pod, container, uid] = text;
        let mut row = ContainerFrame {
            namespace, pod, container, uid, limit_cores: millicores.map(|cores| f64::from(cores) / 1e3), rates: Rates::default(),
            ..ContainerFrame::default()
        };
        let measures = Measure::ALL.into_iter().filter(|of| *of != Measure::LimitCores);
        measures.zip(values).for_each(|(measure, value)| measure.set(&mut row, value));
        row
    }
}

prop_compose! {
    fn frame()(
        at_ms: u64,
        seconds in 0.0..100.0,
        name in ".{0,4}",
        pressure in value(),
        containers in proptest::collection::vec(container(), 0..6),
        pairs in proptest::collection::vec(("[ab]", "[ab]", 0.0..9.0), 0..4),
    ) -> Frame {
        let mut frame = Frame { at_ms, seconds, containers, ..Frame::default() };
        frame.node.name = name;
        frame.node.pressure = pressure;
        let pod = |pod| PodName { namespace: String::new(), pod };
        frame.interference = pairs.into_iter().map(|(victim, aggressor, wait)| {
            api::Interference { victim: pod(victim), aggressor: pod(aggressor), wait }
        }).collect();
        frame
    }
}

/// Rows in an order that does not depend on ties.
fn sorted(mut frame: Frame) -> String {
    frame.seconds = (frame.seconds * 1e6).round() / 1e6;
    let text = |row: &dyn std::fmt::Debug| format!("{row:?}");
    frame.containers.sort_by_key(|row| text(row));
    frame.interference.sort_by_key(|row| text(row));
    format!("{frame:?}")
}

/// The frames of the fixture.
static THREE: LazyLock<Vec<Frame>> = LazyLock::new(version_1);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_frames_are_read_back(frames in proptest::collection::vec(frame(), 1..8)) {
        let read = read(&encode(&frames, &origin()).unwrap()).unwrap();
        let expected = frames.iter().map(|frame| sorted(as_recorded(frame)));
        prop_assert_eq!(read.into_iter().map(sorted).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, keep in 0_usize..1100) {
        // After a valid beginning, too.
        let mut file = include_bytes!("fixtures/version-1.cpuwarden").to_vec();
        file.truncate(keep);
        file.extend_from_slice(&bytes);
        let expected: &[Frame] = &THREE;
        if let Ok(read) = read(&file) {
            prop_assert!(read.iter().all(|frame| expected.contains(frame)));
        }
    }
}

#[test]
fn a_file_damaged_at_its_start_plays_from_the_next_segment() {
    let frames = frames(2, 300);
    let good = encode(&frames, &origin()).unwrap();
    for damaged in [0..1, 0..64, 12..16, 40..44, 0..3000] {
        let mut bytes = good.clone();
        bytes[damaged.clone()].fill(0xff);
        let read = read(&bytes).unwrap();
        assert_eq!(read.last().map(|frame| frame.at_ms), frames.last().map(|frame| frame.at_ms));
        assert_eq!(read.len(), 180, "{damaged:?}");
    }
}

/// Twelve damaged bytes of a file with one segment: those in the header leave nothing, and the error
/// says so; later ones leave the frames before them.
#[test]
fn a_file_of_one_segment_damaged_at_its_start_is_said_to_be_damaged() {
    let frames = small(100);
    let good = encode(&frames, &origin()).unwrap();
    let header = good.len() - records(&good);
    for at in 0..header {
        let mut bytes = good.clone();
        bytes[at..at + 12].fill(0xff);
        let text = read(&bytes).unwrap_err().to_string();
        assert!(text.contains("is damaged at its start"), "{at}: {text}");
    }
    let mut bytes = good.clone();
    let at = good.len() / 2;
    bytes[at..at + 12].fill(0xff);
    let left = read(&bytes).unwrap();
    assert!(left.len() > 10 && left.len() < 90, "{}", left.len());
    assert_eq!(left, frames.iter().take(left.len()).map(as_recorded).collect::<Vec<_>>());
}

/// Number of bytes after the header of the only segment.
fn records(bytes: &[u8]) -> usize {
    let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
    bytes.len() - 20 - length as usize
}

#[test]
fn pipes_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("0000000001.cpuwarden");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = Recording::open(&pipe).err().unwrap();
    assert!(error.to_string().contains("not a regular file"), "{error}");
    let good = encode(frames(2, 3), &origin()).unwrap();
    fs::write(dir.path().join("0000000002.cpuwarden"), good).unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!((recording.times().len(), recording.notes()[0].path.clone()), (3, pipe));
}

#[test]
fn a_clock_that_was_once_in_1970_hides_nothing() {
    let mut frames = frames(2, 10);
    frames[4].at_ms = 5000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording");
    fs::write(&path, encode(&frames, &origin()).unwrap()).unwrap();
    let recording = Recording::open(&path).unwrap();
    let second = |number: u64| START_MS + 1000 * number;
    assert_eq!(recording.position(second(3)), 2, "before the wrong clock");
    assert_eq!(recording.position(second(8)), 7, "after it");
    assert_eq!(recording.position(6000), 4);
    assert_eq!((recording.span(), recording.last_ms()), ((5000, second(10)), second(10)));
    assert_eq!(
        [5000, second(4)].map(|at| recording.next_after(at)),
        [Some(second(1)), Some(second(6))]
    );
}
