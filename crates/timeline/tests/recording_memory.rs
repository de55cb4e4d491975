//! Memory of a recording that is cut out of the history.

#[path = "recording/node.rs"]
mod node;

use std::time::Duration;

use api::KEPT;
use node::{Node, origin};
use peak_alloc::PeakAlloc;
use timeline::recording::encode;
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

#[test]
fn a_recording_of_ten_minutes_needs_little_more_memory_than_its_file() {
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
