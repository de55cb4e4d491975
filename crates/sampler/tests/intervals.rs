//! Idle detection, retries and rechecks last the same time at every sample interval.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::time::Duration;

use sampler::DescriptorBudget;
use support::Node;

const MILLIS: [u64; 5] = [100, 250, 1000, 1500, 30_000];

fn node(millis: u64) -> Node {
    Node::with(1, DescriptorBudget::from_limit(4096), Duration::from_millis(millis))
}

/// Ticks until `seconds` have passed, at least once.
fn pass(node: &mut Node, seconds: u64, millis: u64) {
    (0..(seconds * 1000).div_ceil(millis)).for_each(|_| node.tick());
}

fn usage_usec(node: &Node, number: usize) -> u64 {
    node.latest().containers[number].user_ns.unwrap() / 1000
}

#[test]
fn a_container_is_idle_after_the_same_time() {
    // The longer intervals exceed the times checked here.
    for millis in &MILLIS[..3] {
        let mut node = node(*millis);
        pass(&mut node, 20, *millis);
        node.run(0);
        node.tick();
        (0..500 / millis).for_each(|_| node.tick());
        node.run_unseen(0);
        node.tick();
        assert_eq!(
            usage_usec(&node, 0),
            2000,
            "every {millis} ms: read within a second after it ran"
        );
        pass(&mut node, 6, *millis);
        let before = usage_usec(&node, 0);
        node.run_unseen(0);
        node.tick();
        assert_eq!(
            usage_usec(&node, 0),
            before,
            "every {millis} ms: not read where nothing says that it ran"
        );
    }
}

#[test]
fn an_idle_containers_memory_is_at_most_a_minute_old() {
    for millis in MILLIS {
        let mut node = node(millis);
        pass(&mut node, 120, millis);
        node.write(0, "memory.current", "8192\n");
        pass(&mut node, 60, millis);
        assert_eq!(
            node.latest().containers[0].memory_working_set_bytes,
            Some(8096),
            "every {millis} ms"
        );
        assert_eq!(node.latest().containers[0].memory_live_bytes, Some(3), "anon and shmem");
    }
}

#[test]
fn a_file_that_a_runtime_makes_four_seconds_late_is_found() {
    for millis in MILLIS {
        let mut node = node(millis);
        let pod = node.container(0).parent().unwrap().to_owned();
        let late = pod.join(format!("{:064x}", 99));
        fs::create_dir(&late).unwrap();
        fs::write(late.join("cpu.stat"), "usage_usec 5\nuser_usec 5\nsystem_usec 0\n").unwrap();
        node.tick();
        (0..4000 / millis).for_each(|_| node.tick());
        fs::write(late.join("cpu.weight"), "79\n").unwrap();
        node.tick();
        let latest = node.latest();
        assert_eq!(latest.containers.len(), 3);
        let weights: Vec<_> =
            latest.containers.iter().map(snapshot::ContainerRow::v2_weight).collect();
        assert_eq!(weights, [Some(79); 3], "every {millis} ms");
    }
}
