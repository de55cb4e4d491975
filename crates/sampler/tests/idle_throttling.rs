//! An idle container that was not read counts nothing twice.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sampler::Sampler;
use support::NoNames;

const POD: &str = "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

fn write(directory: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(directory).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}

/// On v1 `cpu.stat` is not read while a container is idle, but `cpu.stat.local` is.
#[test]
fn own_throttling_before_idling_is_not_charged_to_the_pod() {
    let root = tempfile::tempdir().unwrap();
    let quota = [("cpu.cfs_quota_us", "20000\n"), ("cpu.cfs_period_us", "100000\n")];
    let pod = root.path().join("cpu").join(POD);
    write(&pod, &quota);
    write(&pod, &[("cpu.stat", "nr_periods 50\nnr_throttled 0\nthrottled_time 0\n")]);
    let usage = [("cpuacct.usage", "1000\n"), ("cpuacct.stat", "user 1\nsystem 0\n")];
    write(&root.path().join("cpuacct").join(POD).join(ID), &usage);
    let config = support::config(root.path());
    let mut sampler = Sampler::new(config, Box::new(NoNames::default())).unwrap();
    let begun = Instant::now();
    sampler.tick(begun);
    // Complete when its creation is reported, so that all of its history counts.
    let made = root.path().join(ID);
    write(&made, &quota);
    let throttled = "nr_periods 50\nnr_throttled 40\nthrottled_time 4000\n";
    write(&made, &[("cpu.stat", throttled), ("cpu.stat.local", "throttled_time 4100\n")]);
    fs::rename(made, pod.join(ID)).unwrap();
    for second in 1..30 {
        sampler.tick(begun + Duration::from_secs(second));
        let latest = sampler.published().latest();
        let row = &latest.containers[0];
        assert_eq!(
            (row.cfs.unwrap().throttled_ns, row.throttled_ancestor_ns),
            (4000, Some(100)),
            "at {second} s"
        );
    }
}
