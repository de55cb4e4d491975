//! Checkpoints that were stored before this crate read them, byte by byte.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::{Path, PathBuf};

use state_dir::{PinningCheckpoint, Setting, YieldingCheckpoint};

/// Boot of the stored checkpoints.
const BOOT: &str = "1f6b1c9e-0f8b-4e55-a5a1-5a5a0b0c0d0e";

/// A node of this boot, with a copy of a stored checkpoint in its state directory.
struct Node {
    dir: tempfile::TempDir,
    file: PathBuf,
    stored: String,
}

impl Node {
    fn with(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let stored = fs::read_to_string(fixtures.join(name)).unwrap();
        let file = dir.path().join(name);
        fs::write(&file, &stored).unwrap();
        let random = dir.path().join("sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        fs::write(random.join("boot_id"), format!("{BOOT}\n")).unwrap();
        Self { dir, file, stored }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }
}

#[test]
fn the_checkpoint_of_pinning_is_read_and_written_as_before() {
    let node = Node::with("pins.json");
    let found = PinningCheckpoint::of_this_boot(node.path(), node.path()).unwrap().unwrap();
    assert_eq!(found.pins["a-u"].cpus, "0-1");
    assert_eq!(found.written[Path::new("kubepods/poda-u/app")].original, "0-7");
    fs::remove_file(&node.file).unwrap();
    found.write(node.path(), Path::new("/m")).unwrap();
    assert_eq!(node.text(), node.stored);
}

#[test]
fn the_checkpoint_of_yielding_is_read_and_written_as_before() {
    let node = Node::with("yields.json");
    let mut found = YieldingCheckpoint::read(node.path(), node.path()).unwrap();
    let settings: Vec<Setting> = found.written.keys().map(|key| key.1).collect();
    let expected = [Setting::Idle, Setting::Quota, Setting::Cpus, Setting::Quota, Setting::Burst];
    assert_eq!(settings, expected);
    // A scaled quota: only older agents wrote them, and they are not written again.
    let scaled = found.written.remove(&("kubepods/burstable/podb/app".into(), Setting::Quota));
    assert_eq!(scaled.unwrap().original.burst, Some(12_345));
    found.write(node.path(), node.path()).unwrap();
    let body = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    let (before, from) = (body(&node.stored), r#"["kubepods/burstable/podb/app","scaled_quota","#);
    let (start, rest) = before.split_once(from).unwrap();
    let (_, end) = rest.split_once("}],").unwrap();
    assert_eq!(body(&node.text()), format!("{start}{end}"));
    assert_eq!(YieldingCheckpoint::read(node.path(), node.path()).unwrap(), found);
}

#[test]
fn a_checkpoint_of_another_boot_is_void() {
    for name in ["pins.json", "yields.json"] {
        let node = Node::with(name);
        fs::write(node.path().join("sys/kernel/random/boot_id"), "another\n").unwrap();
        let pins = PinningCheckpoint::of_this_boot(node.path(), node.path()).unwrap();
        let yields = YieldingCheckpoint::read(node.path(), node.path()).unwrap();
        assert!(pins.is_none() && yields.written.is_empty(), "{name}");
    }
}
