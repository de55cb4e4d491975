//! Results of a test binary, from the lines that libtest prints with `--report-time`.

use std::time::Duration;

/// Results of one or more test binaries.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Summary {
    /// Number of passed tests.
    pub(super) passed: u64,
    /// Number of failed tests.
    pub(super) failed: u64,
    /// Number of tests marked `ignore`.
    pub(super) skipped: u64,
    /// Failed targets, in order.
    pub(super) failures: Vec<FailedTarget>,
    /// Durations of tests, with their target.
    pub(super) times: Vec<TestTime>,
    /// Finished targets.
    pub(super) targets: Vec<TargetTime>,
}

/// Duration of a test.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestTime {
    /// Arguments of its target, or the label of a node.
    pub(super) place: String,
    /// Path of the test.
    pub(super) test: String,
    /// Seconds, by the clock of its place.
    pub(super) seconds: f64,
}

/// Duration of a target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TargetTime {
    /// The queue that ran it.
    pub(super) queue: String,
    /// Arguments of the target.
    pub(super) target: String,
    /// Wall time.
    pub(super) wall: Duration,
    /// CPU time of the program and of the children that it waited for.
    pub(super) cpu: Duration,
}

/// A failed test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailedTarget {
    /// Arguments of `cargo test` that run only this target: `-p cpuwarden --test it`.
    pub(super) arguments: String,
    /// Failed tests; empty if the target ended without a list of them, for example by a signal.
    pub(super) tests: Vec<String>,
}

impl Summary {
    /// Adds the results of other targets.
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.times.extend(other.times);
        self.targets.extend(other.targets);
    }

    /// Whether tests ran and all of them passed.
    pub(super) fn is_success(&self) -> bool {
        self.passed > 0 && self.failed == 0 && self.failures.is_empty()
    }

    /// Failed targets and tests; the last line has the number of tests.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for target in &self.failures {
            text += &format!("failed: cargo test {}\n", target.arguments);
            if target.tests.is_empty() {
                text += "    ended without a list of failed tests\n";
            }
            target.tests.iter().for_each(|test| text += &format!("    {test}\n"));
        }
        text + &format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Reads the output of one target, line by line.
#[derive(Debug)]
pub(super) struct Follower {
    arguments: String,
    /// Passed, failed and skipped tests. A test that itself runs tests prints their counts first;
    /// the last counts are the target's own.
    latest: Option<[u64; 3]>,
    /// Names below the latest `failures:`.
    names: Vec<String>,
    is_in_list: bool,
    times: Vec<TestTime>,
}

impl Follower {
    pub(super) fn new(arguments: &str) -> Self {
        Self {
            arguments: arguments.to_owned(),
            latest: None,
            names: Vec::new(),
            is_in_list: false,
            times: Vec::new(),
        }
    }

    pub(super) fn follow(&mut self, line: &str) {
        if line == "failures:" {
            self.names.clear();
            self.is_in_list = true;
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.is_in_list) {
            self.names.push(name.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.is_in_list = false;
            self.latest =
                Some(["passed", "failed", "ignored"].map(|word| count_before(result, word)));
        } else if !line.is_empty() {
            self.is_in_list = false;
            self.times.extend(test_time(&self.arguments, line));
        }
    }

    /// The results, after the target's end.
    pub(super) fn finish(self, is_success: bool) -> Summary {
        let [passed, failed, skipped] = self.latest.unwrap_or_default();
        let is_failed = !is_success || failed > 0 || self.latest.is_none();
        // After a success the list is one of tests that a test ran.
        let tests = if failed > 0 { self.names } else { Vec::new() };
        let failures = is_failed.then_some(FailedTarget { arguments: self.arguments, tests });
        let times = self.times;
        let failures = failures.into_iter().collect();
        Summary { passed, failed, skipped, failures, times, targets: Vec::new() }
    }
}

/// The duration in `test a::b ... ok <0.001s>`.
pub(super) fn test_time(place: &str, line: &str) -> Option<TestTime> {
    let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = result.split_once(" <")?;
    let seconds = time.strip_suffix("s>")?.parse().ok()?;
    let test = test.trim_end_matches(" - should panic").to_owned();
    Some(TestTime { place: place.to_owned(), test, seconds })
}

/// Number before a word in `ok. 5 passed; 0 failed; …`.
fn count_before(result: &str, word: &str) -> u64 {
    let parts = result.split([';', '.']).map(str::trim);
    parts.filter_map(|part| part.strip_suffix(word)?.trim().parse().ok()).next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(text: &str, is_success: bool) -> Summary {
        let mut follower = Follower::new("-p a --test b");
        text.lines().for_each(|line| follower.follow(line));
        follower.finish(is_success)
    }

    /// Output of libtest 1.95 with `--report-time`.
    const TWO_FAILED: &str = "
running 4 tests
test one ... ok <0.500s>
test two ... FAILED <1.250s>
test three ... ignored, needs a reason
test four - should panic ... FAILED <0.001s>

failures:

---- two stdout ----
thread 'two' panicked at src/lib.rs:5:
    an indented line

failures:
    two
    four

test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s
";

    #[test]
    fn failed_tests_are_listed_with_their_target() {
        let summary = summary(TWO_FAILED, false);
        assert_eq!((summary.passed, summary.failed, summary.skipped), (1, 2, 1));
        let expected = "failed: cargo test -p a --test b
    two
    four
1 passed, 2 failed, 1 skipped";
        assert_eq!(summary.describe(), expected);
        let times: Vec<_> =
            summary.times.iter().map(|time| (time.test.as_str(), time.seconds)).collect();
        assert_eq!(times, [("one", 0.5), ("two", 1.25), ("four", 0.001)]);
    }

    #[test]
    fn a_target_without_a_result_failed() {
        for text in ["\nrunning 1 test\n", ""] {
            assert!(!summary(text, true).is_success());
        }
        let crashed = summary("running 1 test\n", false);
        assert!(crashed.describe().contains("\n    ended without a list of failed tests\n"));
    }

    #[test]
    fn a_target_that_exits_with_an_error_failed() {
        let text = "test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured;";
        assert!(summary(text, true).is_success());
        assert!(!summary(text, false).is_success());
    }

    #[test]
    fn a_run_without_tests_is_no_success() {
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured;";
        assert!(!summary(none, true).is_success());
    }

    #[test]
    fn results_of_targets_add_up() {
        let mut sum = summary(TWO_FAILED, false);
        sum.add(summary("test result: ok. 4 passed; 0 failed; 5 ignored; 0 measured;", true));
        assert_eq!((sum.passed, sum.failed, sum.skipped), (5, 2, 6));
        assert!(!sum.is_success());
    }

    #[test]
    fn figures_that_a_test_prints_are_not_counted() {
        let nested = "failures:
    inner::test

test result: FAILED. 40 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s
failures:
    outer

test result: FAILED. 7 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.90s
";
        let summary = summary(nested, false);
        assert_eq!((summary.passed, summary.failed), (7, 1));
        assert_eq!(summary.failures[0].tests, ["outer"]);
    }
}
