//! The invariants of the pinning contract as properties over random machines and random sequences of events.

mod allocator;
mod machine;
mod plans;
mod sequences;
mod sim;
mod stage;
mod world;

use proptest::test_runner::Config;

/// As many cases as a slow machine runs in seconds; `PROPTEST_CASES` scales them (256 is once). A failing case is in
/// the test's output, and is no file of the tree.
fn cases(cases: u32) -> Config {
    let config = Config::default();
    Config { cases: (config.cases * cases / 256).max(1), failure_persistence: None, ..config }
}
