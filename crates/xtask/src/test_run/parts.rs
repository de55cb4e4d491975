//! Distribution of a target's tests among the queues.

use crate::grounds::{NOT_ON_HOST, ONLY_IN_ALL};

/// Arguments of the runs of one target, by queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Emulated nodes.
    pub(super) nodes: Vec<Vec<String>>,
    /// Tests that load the CPUs of this machine.
    pub(super) host: Vec<Vec<String>>,
    /// Tests that load nothing.
    pub(super) small: Vec<Vec<String>>,
}

/// Tests of the binary: real cgroups, real load, nodes.
const BINARY: &str = "-p cpuwarden --test it";
/// Tests of the trace on the running kernel and in nodes.
const TRACE: &str = "-p sched-trace --test kernel";
/// All nodes. The two that are left out run a part of what the ignored ones run on 6.12.
const ALL_NODES: &[&str] = &[
    "node::",
    "--include-ignored",
    "--skip",
    "node::kernel_tests_of_two_cpus_pass_on_6_12",
    "--skip",
    "node::kernel_tests_of_eight_cpus_pass_on_6_12",
];
/// Tests of images and releases.
const IMAGE: &str = "-p xtask --test image";

/// Small tests that take more than ten seconds. They start first, so that none of them ends alone.
const LONG: &[&str] = &[
    IMAGE,
    "-p endpoint --test ui",
    "-p nri --test go_library",
    "-p analysis --test it",
    "-p pod-sources --test it",
];

/// Place of a target in the order of the small tests.
pub(super) fn rank(target: &str) -> usize {
    LONG.iter().position(|&long| long == target).unwrap_or(LONG.len())
}

/// The runs of a target, by the arguments of `cargo test` that select it. `all` adds the tests that
/// only a release needs; those are marked `ignore`.
pub(super) fn of(target: &str, all: bool) -> Parts {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    match target {
        BINARY | TRACE => {
            let elsewhere = if all { &[] } else { NOT_ON_HOST };
            let skip = ["node::"].iter().chain(elsewhere);
            let host = skip.flat_map(|name| ["--skip", name]).map(str::to_owned).collect();
            let nodes = words(if all { ALL_NODES } else { &["node::"] });
            let large =
                (target == BINARY && all).then(|| words(&[&["--ignored"], ONLY_IN_ALL].concat()));
            let host = [host].into_iter().chain(large).collect();
            Parts { nodes: vec![nodes], host, ..Parts::default() }
        }
        IMAGE if all => Parts { small: vec![words(&["--include-ignored"])], ..Parts::default() },
        _ => Parts { small: vec![Vec::new()], ..Parts::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_host_tests_are_apart() {
        let parts = of(BINARY, false);
        assert_eq!(parts.nodes, [["node::"]]);
        assert_eq!(parts.host[0][..2], ["--skip", "node::"]);
        assert!(NOT_ON_HOST.iter().all(|name| parts.host[0].iter().any(|word| word == name)));
        assert!(parts.small.is_empty());
    }

    #[test]
    fn a_release_runs_every_kernel_test_on_the_host() {
        let parts = of(BINARY, true);
        assert!(!NOT_ON_HOST.iter().any(|name| parts.host[0].iter().any(|word| word == name)));
        assert_eq!(parts.nodes, [ALL_NODES]);
        let large = parts.host.last().unwrap();
        assert!(large[0] == "--ignored" && large[1..] == *ONLY_IN_ALL, "{large:?}");
        assert_eq!(of(IMAGE, true).small, [["--include-ignored"]]);
        assert_eq!(of(IMAGE, false).small, [Vec::<String>::new()]);
    }
}
