//! Recheck intervals: ten seconds, or 60 seconds if nothing has run since the last read.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use support::Node;

/// Number of ticks after which every cgroup is idle.
const IDLE_TICKS: usize = 30;
const RECHECK_TICKS: usize = 10;
const IDLE_RECHECK_TICKS: usize = 60;

fn working_sets(node: &Node) -> Vec<u64> {
    node.latest().containers.iter().map(|row| row.memory_working_set_bytes.unwrap()).collect()
}

#[test]
fn memory_of_idle_containers_is_read_less_often() {
    let mut node = Node::new(1);
    let ticks = |node: &mut Node, count| {
        for _ in 0..count {
            node.run(0);
            node.tick();
        }
    };
    ticks(&mut node, IDLE_TICKS);
    assert_eq!(working_sets(&node), [4000, 4000]);
    for number in [0, 1] {
        node.write(number, "memory.current", "8192\n");
    }
    ticks(&mut node, RECHECK_TICKS);
    let after_recheck = working_sets(&node);
    ticks(&mut node, IDLE_RECHECK_TICKS - RECHECK_TICKS);
    assert_eq!(working_sets(&node), [8096, 8096]);
    assert_eq!(after_recheck[0], 8096, "it runs");
}

#[test]
fn a_container_that_ran_is_read_at_the_next_recheck() {
    let mut node = Node::new(1);
    (0..IDLE_TICKS).for_each(|_| node.tick());
    // At each tick of a recheck interval, because one of them is when it is due.
    for after in 0..RECHECK_TICKS {
        node.run(1);
        node.tick();
        let grown = 8192 + 4096 * after as u64;
        node.write(1, "memory.current", &format!("{grown}\n"));
        (0..2 * RECHECK_TICKS).for_each(|_| node.tick());
        assert_eq!(working_sets(&node)[1], grown - 96, "{after} ticks on");
    }
}

#[test]
fn an_idle_containers_memory_is_not_read_at_every_recheck() {
    let mut node = Node::new(8);
    (0..IDLE_TICKS).for_each(|_| node.tick());
    (0..16).for_each(|number| node.write(number, "memory.current", "8192\n"));
    (0..RECHECK_TICKS).for_each(|_| node.tick());
    let read = working_sets(&node).into_iter().filter(|&bytes| bytes == 8096).count();
    assert!(read <= 8, "{read} of 16 were read in one of six recheck intervals");
}
