//! Files that only the page of cAdvisor's names needs: read if they are configured, else not opened.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sampler::{ExtraFiles, Sampler, SamplerConfig};
use snapshot::KernelCounters;
use support::{NoNames, Node};

const MEMORY: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=11\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
const IO: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=13\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
const ALL: ExtraFiles = ExtraFiles { pressure: true, tasks: true, memory: true };

/// Counters of the first of two containers after some ticks, and the number of parse errors.
fn sample(extra: ExtraFiles, files: [(&str, &str); 3]) -> (KernelCounters, u64) {
    let root = Node::make_root(1);
    for container in containers(root.path()) {
        files.iter().for_each(|(name, text)| fs::write(container.join(name), text).unwrap());
    }
    let config = SamplerConfig { extra, ..support::config(root.path()) };
    let mut sampler = Sampler::new(config, Box::new(NoNames::default())).unwrap();
    let started = Instant::now();
    (1..=3).for_each(|second| sampler.tick(started + Duration::from_secs(second)));
    let latest = sampler.published().latest();
    let errors = &latest.sampler.read_errors;
    let parse = errors.iter().find(|(reason, _)| *reason == "parse").unwrap().1;
    (latest.containers[0].kernel, parse)
}

fn containers(root: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let pod = root.join("kubepods/burstable/pod00000000-0000-4000-8000-000000000000");
    (0..2).map(move |number| pod.join(format!("{number:064x}")))
}

#[test]
fn pressure_and_tasks_are_the_kernels_values() {
    let files = [("memory.pressure", MEMORY), ("io.pressure", IO), ("pids.current", "17\n")];
    let (kernel, errors) = sample(ALL, files);
    assert_eq!((kernel.memory_waiting_ns, kernel.memory_stalled_ns), (Some(11_000), Some(7000)));
    assert_eq!((kernel.io_waiting_ns, kernel.io_stalled_ns), (Some(13_000), Some(5000)));
    assert_eq!((kernel.tasks, errors), (Some(17), 0));
}

#[test]
fn files_that_are_not_configured_are_not_read() {
    let unreadable =
        [("memory.pressure", "some x\n"), ("io.pressure", "some x\n"), ("pids.current", "x")];
    let (kernel, errors) = sample(ExtraFiles::default(), unreadable);
    assert_eq!((kernel.memory_waiting_ns, kernel.tasks, errors), (None, None, 0));
    // Two containers with three files.
    assert_eq!(sample(ALL, unreadable).1, 6, "the files are read if they are configured");
}

/// Second from which a new size of a container's memory is known; it is written after the first tick.
fn second_of_new_memory(extra: ExtraFiles) -> u64 {
    let root = Node::make_root(1);
    let write = |bytes: &str| {
        for container in containers(root.path()) {
            fs::write(container.join("memory.current"), bytes).unwrap();
            fs::write(container.join("memory.stat"), "inactive_file 0\n").unwrap();
        }
    };
    write("1000\n");
    let config = SamplerConfig { extra, ..support::config(root.path()) };
    let mut sampler = Sampler::new(config, Box::new(NoNames::default())).unwrap();
    let started = Instant::now();
    let mut usage = 0;
    let known = |sampler: &Sampler| {
        sampler.published().latest().containers.first().and_then(|row| row.memory_working_set_bytes)
    };
    for second in 1..=60 {
        usage += 1;
        for container in containers(root.path()) {
            let stat = format!("usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\n");
            fs::write(container.join("cpu.stat"), stat).unwrap();
        }
        sampler.tick(started + Duration::from_secs(second));
        match known(&sampler) {
            Some(1000) => write("2000\n"),
            Some(2000) => return second,
            other => assert_eq!(other, None),
        }
    }
    panic!("the new size was not read in a minute")
}

#[test]
fn memory_is_read_more_often_for_that_page() {
    assert!((9..=21).contains(&second_of_new_memory(ALL)));
    assert!((27..=45).contains(&second_of_new_memory(ExtraFiles::default())));
}
