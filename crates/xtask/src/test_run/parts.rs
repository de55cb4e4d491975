//! Which tests of a target run where.

/// Arguments of the runs of one target, by queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Emulated nodes.
    pub(super) nodes: Vec<Vec<String>>,
    /// Tests that load the CPUs of this machine.
    pub(super) host: Vec<Vec<String>>,
    /// Tests that load nothing.
    pub(super) small: Vec<Vec<String>>,
    /// Tests that need more than one CPU.
    pub(super) all_cpus: Vec<Vec<String>>,
}

/// Tests of the binary: real cgroups, real load, nodes.
const BINARY: &str = "-p cpuwarden --test it";
/// Tests of the trace on the running kernel and in nodes.
const TRACE: &str = "-p sched-trace --test kernel";
/// Tests of images and releases.
const IMAGE: &str = "-p xtask --test image";

/// The runs of a target, by the arguments of `cargo test` that select it.
pub(super) fn of(target: &str, all: bool) -> Parts {
    let run = |words: &[&str]| vec![words.iter().map(|&word| word.to_owned()).collect()];
    match target {
        BINARY | TRACE => {
            Parts { nodes: run(&["node::"]), host: run(&["--skip", "node::"]), ..Parts::default() }
        }
        IMAGE if all => Parts { small: run(&["--include-ignored"]), ..Parts::default() },
        _ => Parts { small: run(&[]), ..Parts::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_host_tests_are_apart() {
        let parts = of(BINARY, false);
        assert_eq!(parts.nodes, [["node::"]]);
        assert_eq!(parts.host, [["--skip", "node::"]]);
        assert!(parts.small.is_empty());
    }
}
