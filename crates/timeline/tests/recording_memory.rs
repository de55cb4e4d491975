//! Memory of a recording that is cut out of the history, and of one that is not read.

#[path = "recording/node.rs"]
mod node;

use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::KEPT;
use node::{Node, origin};
use peak_alloc::PeakAlloc;
use timeline::recording::{Recording, encode};
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

/// Tests share the heap.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_file_that_is_too_large_for_a_recording_is_not_read() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0000000001.cpuwarden");
    File::create(&path).unwrap().set_len(4 << 30).unwrap();
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let error = Recording::open(&path).err().unwrap();
    let peak = HEAP.peak_usage().saturating_sub(before);
    // All of it that is read is in memory.
    assert!(peak < MIB / 4, "{peak} bytes");
    assert!(error.to_string().ends_with("is larger than 1024 MiB; no recording is"), "{error}");
}

#[test]
fn a_recording_of_ten_minutes_needs_little_more_memory_than_its_file() {
    let _turn = turn();
    let timeline = Timeline::new(TimelineConfig {
        node: "node-1".to_owned(),
        containers: MAX_CONTAINERS,
        pairs: MAX_PAIRS,
    });
    // 330 containers, all busy.
    let mut node = Node::new(1);
    (0..KEPT).for_each(|_| timeline.add(&node.frame()));
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let bytes = encode(timeline.frames(Duration::from_secs(KEPT as u64)), &origin()).unwrap();
    let peak = HEAP.peak_usage() - before;
    println!("{} KiB for a file of {} KiB", peak >> 10, bytes.len() >> 10);
    assert!(bytes.len() > MIB, "{} bytes are no recording of ten minutes", bytes.len());
    // The file's buffer doubles when it grows; the chart's limit of the agent's memory is 128 MiB.
    assert!(peak < 2 * bytes.len() + 4 * MIB, "{peak} bytes");
    assert!(peak < 16 * MIB, "{peak} bytes");
}
