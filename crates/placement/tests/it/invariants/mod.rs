//! The invariants of the pinning contract as properties over random machines and random sequences
//! of events.

mod allocator;
mod machine;
mod plans;
mod sequences;
mod sim;
mod stage;
mod world;

use proptest::test_runner::Config;

/// Number of cases that a slow machine runs in seconds; `PROPTEST_CASES` scales it (256 means 1×).
/// A failing case appears in the test's output; no file is written.
fn cases(cases: u32) -> Config {
    let config = Config::default();
    Config { cases: (config.cases * cases / 256).max(1), failure_persistence: None, ..config }
}
