//! Tests of a test binary, in a guest.

use std::ffi::OsStr;
use std::path::Path;

use super::times::GuestTimes;
use super::{Ending, Node, NodeError, Outcome};

/// libtest's options in a guest. Tests run one after the other: a second one would take CPU time
/// from the first. Durations are an unstable option, which `RUSTC_BOOTSTRAP` permits.
const OPTIONS: [&str; 3] = ["--test-threads=1", "-Zunstable-options", "--report-time"];
const PERMIT_UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// Result of a run of tests in a guest.
#[derive(Debug)]
pub struct TestsOutcome {
    /// Outcome of the test binary or the guest.
    pub outcome: Outcome,
    /// Number of tests that passed, 0 if one failed.
    pub passed: usize,
    /// Durations by the guest's clock.
    pub times: GuestTimes,
}

impl Node {
    /// Runs tests of a test binary in the guest, one after the other. Writes their durations into
    /// `target/test-times/LABEL.txt` ([`super::times`]).
    ///
    /// # Errors
    /// As for [`run`](Self::run), and if the durations cannot be written. A failed test is part of
    /// the outcome.
    pub fn run_tests(
        mut self,
        label: &str,
        binary: &Path,
        args: &[impl AsRef<OsStr>],
    ) -> Result<TestsOutcome, NodeError> {
        let (name, value) = PERMIT_UNSTABLE;
        self.env.push((name.into(), value.into()));
        let args: Vec<_> =
            args.iter().map(AsRef::as_ref).chain(OPTIONS.iter().map(OsStr::new)).collect();
        let outcome = self.run(binary, &args)?;
        let stdout = String::from_utf8_lossy(&outcome.stdout);
        let times = GuestTimes::parse(label, outcome.elapsed.as_secs_f64(), &stdout);
        times.write()?;
        Ok(TestsOutcome { passed: passed(&stdout), times, outcome })
    }
}

impl TestsOutcome {
    /// Prints durations and failures, and panics unless all of these tests passed.
    ///
    /// # Panics
    /// If the guest was lost, a test failed, or another number of tests ran.
    pub fn assert_passed(&self, expected: usize) {
        let GuestTimes { label, guest_seconds, wall_seconds, tests } = &self.times;
        println!("--- {label}: {guest_seconds:.0} s in the guest, {wall_seconds:.0} s here");
        for (name, seconds) in tests {
            println!("test-time: {label} {name} {seconds:.3}");
        }
        let stdout = String::from_utf8_lossy(&self.outcome.stdout);
        // After a failure without the list of the tests that passed: logs of CI are cut.
        let (_, failures) = stdout.split_once("\nfailures:\n").unwrap_or(("", &*stdout));
        println!("{failures}\n{}", String::from_utf8_lossy(&self.outcome.stderr));
        assert_eq!(self.outcome.ending, Ending::Exited(0), "{}", self.outcome.describe());
        assert_eq!(self.passed, expected, "number of tests that ran in the guest");
    }
}

/// Number of tests in `test result: ok. 5 passed; …`.
fn passed(stdout: &str) -> usize {
    let results = stdout.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|result| result.split(' ').next()?.parse::<usize>().ok()).sum()
}
