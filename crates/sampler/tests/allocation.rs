//! A steady tick allocates nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use support::Node;

/// Number of pods. Half of the containers run, the others are idle.
const PODS: usize = 20;

fn tick(node: &mut Node) -> u64 {
    (0..PODS).for_each(|pod| node.run(2 * pod));
    allocation_counter::measure(|| node.tick()).count_total
}

#[test]
fn a_steady_tick_allocates_nothing() {
    let mut node = Node::new(PODS);
    // Long enough to read every container's threads twice, whatever the budget of a tick allows.
    (0..200).for_each(|_| _ = tick(&mut node));
    let before = node.latest();
    assert_eq!((before.containers.len(), before.pods.len()), (40, 20));
    assert!(
        before
            .containers
            .iter()
            .all(|row| row.threads.counted().is_some() && row.contention_upper_ns.is_some())
    );
    drop(before);
    // A full round of all reads, including the rechecks of idle cgroups.
    let allocations: u64 = (0..70).map(|_| tick(&mut node)).sum();
    assert_eq!(allocations, 0);
    assert_eq!(node.latest().sequence, 270);
}
