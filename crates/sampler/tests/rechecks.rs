//! Intervals in which memory is read: 30 seconds, or 120 if nothing has run since the last read.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use support::Node;

/// Number of ticks after which every cgroup is idle, and its memory was read since.
const IDLE_TICKS: usize = 50;
/// Number of ticks after which memory that is read every 30 seconds is read.
const MEMORY_TICKS: usize = 40;
const IDLE_MEMORY_TICKS: usize = 120;

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
    ticks(&mut node, MEMORY_TICKS);
    assert_eq!(working_sets(&node)[0], 8096, "it runs");
    ticks(&mut node, IDLE_MEMORY_TICKS - MEMORY_TICKS);
    assert_eq!(working_sets(&node), [8096, 8096]);
}

#[test]
fn memory_of_a_container_that_ran_is_read_within_its_interval() {
    let mut node = Node::new(1);
    (0..IDLE_TICKS).for_each(|_| node.tick());
    // At each tick of an interval, because one of them is when it is due.
    for after in 0..MEMORY_TICKS {
        node.run(1);
        node.tick();
        let grown = 8192 + 4096 * after as u64;
        node.write(1, "memory.current", &format!("{grown}\n"));
        (0..MEMORY_TICKS).for_each(|_| node.tick());
        assert_eq!(working_sets(&node)[1], grown - 96, "{after} ticks on");
    }
}

#[test]
fn an_idle_containers_memory_is_not_read_in_that_interval() {
    let mut node = Node::new(8);
    (0..IDLE_TICKS).for_each(|_| node.tick());
    (0..16).for_each(|number| node.write(number, "memory.current", "8192\n"));
    (0..MEMORY_TICKS).for_each(|_| node.tick());
    let read = working_sets(&node).into_iter().filter(|&bytes| bytes == 8096).count();
    assert!(read <= 8, "{read} of 16 were read in a third of the interval of idle ones");
}
