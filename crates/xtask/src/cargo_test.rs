//! Runs `cargo test` to completion and adds up the results of its test binaries.
//!
//! The output passes through unchanged. The target, the counts and the names of failed tests come
//! from the lines of cargo and libtest.

use std::io::{self, BufRead as _, BufReader, PipeReader, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::process::{self, CommandError};

/// Maximum wait for output after cargo has ended: a process that a test left behind may hold the
/// pipe open.
const LATE_OUTPUT: Duration = Duration::from_secs(2);

/// Result of a run of `cargo test`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of passed tests, in all targets.
    pub passed: u64,
    /// Number of failed tests.
    pub failed: u64,
    /// Number of tests marked `ignore`.
    pub skipped: u64,
    /// Failed targets, in order.
    pub failures: Vec<FailedTarget>,
    /// Targets that took [`LONG`] or more, in order: `tests/it/main.rs (it)`.
    pub long: Vec<(String, Duration)>,
}

/// Shorter targets are not listed.
pub const LONG: Duration = Duration::from_secs(10);

/// A failed test binary, or failed documentation tests of a crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTarget {
    /// Arguments of `cargo test` that run only this target: `-p cpuwarden --test it`.
    pub arguments: String,
    /// Failed tests; empty if the target ended without a list of them, for example by a signal.
    pub tests: Vec<String>,
}

/// Runs the command with its output passed to `out`; returns its exit status and the summary.
///
/// # Errors
/// A command that cannot be started.
pub fn run(
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(ExitStatus, Summary), CommandError> {
    let (mut child, reader) =
        start(&mut command).map_err(|source| process::start_error(&command, source))?;
    // Dropping the command closes its end of the pipe; otherwise the reader would never see the
    // end.
    let line = process::command_line(&command);
    drop(command);
    let mut summary = Follower::default();
    let status = follow(&mut child, &lines(reader), |line| {
        // If the output cannot be written, the tests still run.
        let _ = out.write_all(line);
        summary.follow(String::from_utf8_lossy(line).trim_end(), Instant::now());
    });
    let status = status.map_err(|source| CommandError::Start { command: line, source })?;
    Ok((status, summary.finish(Instant::now())))
}

/// Both outputs share one pipe, so that their lines keep their order.
fn start(command: &mut Command) -> io::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    Ok((child, reader))
}

fn lines(reader: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    receiver
}

fn follow(
    child: &mut Child,
    lines: &Receiver<Vec<u8>>,
    mut each: impl FnMut(&[u8]),
) -> io::Result<ExitStatus> {
    loop {
        match lines.recv_timeout(LATE_OUTPUT) {
            Ok(line) => each(&line),
            Err(RecvTimeoutError::Disconnected) => return child.wait(),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
            }
        }
    }
}

impl Summary {
    /// Adds the results of another run.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures.iter().cloned());
        self.long.extend(other.long.iter().cloned());
    }

    /// Whether every test that ran passed.
    pub fn is_success(&self) -> bool {
        self.failed == 0 && self.failures.is_empty()
    }

    /// Long targets, failed targets and tests; the last line has the number of tests.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (target, time) in &self.long {
            text += &format!("{:5.0} s  {target}\n", time.as_secs_f64());
        }
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

/// State between two lines.
#[derive(Debug, Default)]
struct Follower {
    summary: Summary,
    /// The current target, and when it began.
    target: Option<(String, Instant)>,
    /// Passed, failed and skipped tests of the current target. A test that itself runs tests prints
    /// their counts first; the last counts are the target's own.
    latest: [u64; 3],
    /// Names below the latest `failures:`.
    names: Vec<String>,
    list: List,
}

/// The list to which an indented line belongs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum List {
    #[default]
    None,
    /// libtest's failed tests of a target.
    Tests,
    /// cargo's failed targets of the whole run.
    Targets,
}

impl Follower {
    fn follow(&mut self, line: &str, now: Instant) {
        if line == "failures:" {
            self.names.clear();
            self.list = List::Tests;
        } else if let Some(entry) = line.strip_prefix("    ").filter(|_| self.list != List::None) {
            match self.list {
                List::Targets => self.ensure_failed(entry.trim().trim_matches('`')),
                _ => self.names.push(entry.to_owned()),
            }
        } else if !line.is_empty() {
            self.list = List::None;
            self.follow_status(line, now);
        }
    }

    fn follow_status(&mut self, line: &str, now: Instant) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.latest = ["passed", "failed", "ignored"].map(|word| count_before(result, word));
        } else if let Some((_, arguments)) = line
            .strip_prefix("error: ")
            .and_then(|error| error.split_once("failed, to rerun pass `"))
        {
            let target = FailedTarget {
                arguments: arguments.trim_end_matches('`').to_owned(),
                tests: std::mem::take(&mut self.names),
            };
            self.end_target(now);
            self.summary.failures.push(target);
        } else if let Some(target) =
            ["     Running ", "   Doc-tests "].iter().find_map(|status| line.strip_prefix(status))
        {
            self.end_target(now);
            self.target = Some((name_of(target), now));
        } else if is_list_of_targets(line) {
            self.end_target(now);
            self.list = List::Targets;
        }
    }

    /// Lists a failed target whose own line is missing: the output of a process that a test left
    /// behind can be in the middle of that line.
    fn ensure_failed(&mut self, arguments: &str) {
        if !self.summary.failures.iter().any(|target| target.arguments == arguments) {
            let target = FailedTarget { arguments: arguments.to_owned(), tests: Vec::new() };
            self.summary.failures.push(target);
        }
    }

    fn end_target(&mut self, now: Instant) {
        let [passed, failed, skipped] = std::mem::take(&mut self.latest);
        self.summary.passed += passed;
        self.summary.failed += failed;
        self.summary.skipped += skipped;
        self.names.clear();
        if let Some((target, began)) = self.target.take() {
            let time = now.duration_since(began);
            self.summary.long.extend((time >= LONG).then_some((target, time)));
        }
    }

    fn finish(mut self, now: Instant) -> Summary {
        self.end_target(now);
        self.summary
    }
}

/// Whether it is `error: 2 targets failed:`.
fn is_list_of_targets(line: &str) -> bool {
    line.starts_with("error: ")
        && [" target failed:", " targets failed:"].iter().any(|end| line.ends_with(end))
}

/// `unittests src/lib.rs (a)` of `unittests src/lib.rs (target/debug/deps/a-0123456789abcdef)`.
fn name_of(target: &str) -> String {
    let program = target.rsplit_once('/').zip(target.split_once(" ("));
    let Some(((_, program), (source, _))) = program else { return target.to_owned() };
    let name = program.rsplit_once('-').map_or(program, |(name, _)| name);
    format!("{source} ({name})")
}

/// Number before a word in `ok. 5 passed; 0 failed; …`.
fn count_before(result: &str, word: &str) -> u64 {
    let parts = result.split([';', '.']).map(str::trim);
    parts.filter_map(|part| part.strip_suffix(word)?.trim().parse().ok()).next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The summary if each line comes a second after the one before.
    fn summary(text: &str) -> Summary {
        let mut follower = Follower::default();
        let mut now = Instant::now();
        for line in text.lines() {
            follower.follow(line, now);
            now += Duration::from_secs(1);
        }
        follower.finish(now)
    }

    /// Output of cargo 1.95 with `--no-fail-fast`.
    const TWO_FAILED: &str = "
     Running unittests src/lib.rs (target/debug/deps/a-0123456789abcdef)

running 3 tests
test one ... ok
test two ... FAILED
test three ... ignored

failures:

---- two stdout ----
thread 'two' panicked at src/lib.rs:5:
    an indented line

failures:
    two

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p a --lib`
     Running tests/b.rs (target/debug/deps/b-0123456789abcdef)

running 1 test
error: test failed, to rerun pass `-p a --test b`

Caused by:
  process didn't exit successfully: `target/debug/deps/b-0123456789abcdef` (signal: 6, SIGABRT: process abort signal)
   Doc-tests a

running 2 tests
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s

error: 2 targets failed:
    `-p a --lib`
    `-p a --test b`
";

    #[test]
    fn failed_targets_are_listed_with_their_tests() {
        let summary = summary(TWO_FAILED);
        let failed = |arguments: &str, tests: &[&str]| FailedTarget {
            arguments: arguments.to_owned(),
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
        };
        assert_eq!(
            summary.failures,
            [failed("-p a --lib", &["two"]), failed("-p a --test b", &[])]
        );
        assert_eq!((summary.passed, summary.failed, summary.skipped), (3, 1, 1));
        let expected = "   18 s  unittests src/lib.rs (a)
failed: cargo test -p a --lib
    two
failed: cargo test -p a --test b
    ended without a list of failed tests
3 passed, 1 failed, 1 skipped";
        assert_eq!(summary.describe(), expected);
    }

    #[test]
    fn results_of_two_runs_add_up() {
        let mut sum = summary(TWO_FAILED);
        sum.add(&summary("test result: ok. 4 passed; 0 failed; 5 ignored; 0 measured;"));
        sum.add(&summary(TWO_FAILED));
        assert_eq!((sum.passed, sum.failed, sum.skipped), (10, 2, 7));
        assert_eq!((sum.failures.len(), sum.long.len()), (4, 2));
        assert!(!sum.is_success());
    }

    #[test]
    fn a_failed_target_without_its_own_line_is_in_the_list_of_cargo() {
        let garbled = TWO_FAILED.replace("error: test failed, to rerun", "xerror: test failed,");
        let failed: Vec<_> =
            summary(&garbled).failures.into_iter().map(|target| target.arguments).collect();
        assert_eq!(failed, ["-p a --lib", "-p a --test b"]);
    }

    #[test]
    fn figures_that_a_test_prints_are_not_counted() {
        let nested = "
     Running tests/it/main.rs (target/debug/deps/it-0123456789abcdef)
failures:
    inner::test

test result: FAILED. 40 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s
failures:
    outer

test result: FAILED. 7 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.90s
error: test failed, to rerun pass `-p a --test it`
";
        let summary = summary(nested);
        assert_eq!((summary.passed, summary.failed), (7, 1));
        assert_eq!(summary.failures[0].tests, ["outer"]);
    }
}
