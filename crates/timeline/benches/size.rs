//! Cost and size of a recording: 250 pods with 330 containers, 64 CPUs, ten minutes. Cases:
//!
//! - every container busy, every fourth, and none: bytes per second, hours per 100 MB, CPU per
//!   second to record
//! - a day in a thinned ring with all containers busy, each waiting for one or five others,
//!   extrapolated from two hours
//! - the same frames as JSON, one after the other, through the same compressor, for comparison
//!
//! `cargo bench -p timeline`

#[path = "../tests/recording/node.rs"]
mod node;

use std::hint::black_box;

use api::Frame;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use node::{Node, START_MS, origin};
use rustix::time::{ClockId, clock_gettime};
use timeline::recording::{Ring, RingConfig, encode};

const SECONDS: usize = 600;

fn main() {
    for (name, busy_every) in [("all busy", 1), ("every 4th busy", 4), ("idle", usize::MAX)] {
        let mut node = Node::new(busy_every);
        let frames: Vec<Frame> = (0..SECONDS).map(|_| node.frame()).collect();
        assert!(frames[0].at_ms > START_MS);
        let (bytes, ms) = timed(|| encode(&frames, &origin()).expect("frames can be encoded"));
        report(name, bytes.len(), ms);
        let (bytes, ms) = timed(|| as_json(&frames));
        report(&format!("{name}, as JSON"), bytes.len(), ms);
    }
    for aggressors in [1, 5] {
        day(aggressors);
    }
}

/// The size of a day in a thinned ring.
fn day(aggressors: usize) {
    const HOURS: u64 = 2;
    let dir = tempfile::tempdir().expect("a directory");
    let config = RingConfig::new(dir.path().to_owned(), 1 << 30).thinned().without_sync();
    let mut ring = Ring::open(config, origin()).expect("the directory can be written");
    let mut node = Node::new(1).with_aggressors(aggressors);
    let mut ms = 0.0;
    for _ in 0..3600 * HOURS {
        let frame = node.frame();
        let began = cpu_ms();
        ring.append(&frame).expect("the directory can be written");
        ms += cpu_ms() - began;
    }
    let (mut full, mut means) = (0, 0);
    for entry in std::fs::read_dir(dir.path()).expect("a directory") {
        let entry = entry.expect("an entry");
        let is_thinned = entry.file_name().to_string_lossy().starts_with("thinned-");
        let size = if is_thinned { &mut means } else { &mut full };
        *size += entry.metadata().expect("a file").len();
    }
    println!(
        "a day, each container waits for {aggressors}: {:.1} MB of the last hour, {:.1} MB of means, {:.3} ms of CPU per second",
        full as f64 / 1e6,
        means as f64 / 1e6 * 24.0 / HOURS as f64,
        ms / (3600 * HOURS) as f64
    );
}

fn timed(encode: impl Fn() -> Vec<u8>) -> (Vec<u8>, f64) {
    let began = cpu_ms();
    let bytes = black_box(encode());
    (bytes, cpu_ms() - began)
}

/// CPU time of this thread, milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn report(name: &str, bytes: usize, ms: f64) {
    let per_second = bytes as f64 / SECONDS as f64;
    println!(
        "{name:24} {per_second:8.0} B/s {:6.1} h per 100 MB {:7.3} ms of CPU per second",
        100e6 / per_second / 3600.0,
        ms / SECONDS as f64
    );
}

fn as_json(frames: &[Frame]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    for frame in frames {
        serde_json::to_writer(&mut encoder, frame).expect("a frame is JSON");
        // As crash-safe as a recording.
        std::io::Write::flush(&mut encoder).expect("memory does not fail");
    }
    encoder.finish().expect("memory does not fail")
}
