//! The soak of plain files, for some hundred ticks.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../benches/soak/drive.rs"]
mod drive;
#[path = "../benches/soak/node.rs"]
mod node;

use std::fs::File;

use drive::Soak;

const SOAK: Soak = Soak { pods: 10, ticks: 960, starts: 2.0, is_kernel_counted: false };

#[test]
fn a_soak_shows_no_growth_and_fails_on_a_leaked_descriptor() {
    // One after the other: both count the descriptors and the memory of this process.
    let (report, outcome) = SOAK.run(|_| {});
    outcome.unwrap_or_else(|error| panic!("{error}\n{report}"));
    let line = report.lines().rfind(|line| line.contains(" 960 ")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["960", "960", "1940"], "{report}");
    let (report, outcome) = SOAK.run(|second| {
        if second.is_multiple_of(10) {
            std::mem::forget(File::open("/proc/self/stat").unwrap());
        }
    });
    let error = outcome.expect_err(&report).to_string();
    assert_eq!(error, "the agent's descriptors grew by more than a tenth", "{report}");
}
