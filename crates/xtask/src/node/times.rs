//! Durations of tests in a guest, by the guest's clock: from libtest's output, in one file per run
//! of a guest in `target/test-times`.

use std::fs;
use std::path::{Path, PathBuf};

use super::NodeError;
use crate::workspace;

/// Durations of the tests of one guest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestTimes {
    /// Name of the guest, without spaces: `linux-6.1`.
    pub label: String,
    /// Duration of all tests by the guest's clock, seconds.
    pub guest_seconds: f64,
    /// Time from the guest's power-on to its power-off by the host's clock, seconds.
    pub wall_seconds: f64,
    /// Name and duration of each test, by the guest's clock, seconds.
    pub tests: Vec<(String, f64)>,
}

impl GuestTimes {
    /// The durations in the output of a test binary with `--report-time`: `test NAME ... ok <1.2s>`.
    /// What a test prints may be between its name and its result.
    pub(super) fn parse(label: &str, wall_seconds: f64, stdout: &str) -> Self {
        let mut times = Self { label: label.to_owned(), wall_seconds, ..Self::default() };
        let mut name = None;
        for line in stdout.lines() {
            let started = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
            if let Some((test, _)) = started {
                name = Some(test.to_owned());
            }
            if let Some(seconds) = duration(line)
                && let Some(name) = name.take()
            {
                times.tests.push((name, seconds));
            }
        }
        times.guest_seconds = times.tests.iter().map(|(_, seconds)| seconds).sum();
        times
    }

    /// Writes the file `LABEL.txt`: `total GUEST_SECONDS WALL_SECONDS`, then a line
    /// `NAME SECONDS` per test.
    pub(super) fn write(&self) -> Result<(), NodeError> {
        let path = directory().join(format!("{}.txt", self.label));
        fs::create_dir_all(directory()).map_err(NodeError::io(directory()))?;
        fs::write(&path, self.to_text()).map_err(NodeError::io(path))
    }

    fn to_text(&self) -> String {
        let mut text = format!("total {:.3} {:.3}\n", self.guest_seconds, self.wall_seconds);
        self.tests.iter().for_each(|(name, seconds)| text += &format!("{name} {seconds:.3}\n"));
        text
    }

    fn from_text(label: &str, text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (guest, wall) = lines.next()?.strip_prefix("total ")?.split_once(' ')?;
        let test = |line: &str| {
            let (name, seconds) = line.rsplit_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        };
        Some(Self {
            label: label.to_owned(),
            guest_seconds: guest.parse().ok()?,
            wall_seconds: wall.parse().ok()?,
            tests: lines.map(test).collect::<Option<_>>()?,
        })
    }
}

/// The durations that guests have left since [`clear`], by label. A file that is not whole is left
/// out.
pub fn read_all() -> Vec<GuestTimes> {
    let mut paths: Vec<_> = fs::read_dir(directory())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let read = |path: &Path| {
        let label = path.file_stem()?.to_str()?;
        GuestTimes::from_text(label, &fs::read_to_string(path).ok()?)
    };
    paths.iter().filter_map(|path| read(path)).collect()
}

/// Removes the durations of earlier runs.
pub fn clear() {
    let _ = fs::remove_dir_all(directory());
}

fn directory() -> PathBuf {
    workspace::target_dir().join("test-times")
}

/// Seconds at the end of a line such as `test a ... ok <1.234s>`.
fn duration(line: &str) -> Option<f64> {
    let (before, time) = line.strip_suffix("s>")?.rsplit_once(" <")?;
    let is_result = ["ok", "FAILED"].iter().any(|result| before.ends_with(result));
    is_result.then(|| time.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const STDOUT: &str = "
running 4 tests
test a::passes ... ok <1.500s>
test a::prints ... Measured { found: 3 }
ends with <2s>
ok <2.250s>
test a::fails ... FAILED <0.250s>
test a::is_ignored ... ignored, needs eight CPUs
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 3 filtered out; finished in 4.01s
";

    #[test]
    fn durations_are_those_of_libtest_also_where_a_test_prints() {
        let times = GuestTimes::parse("linux-6.1", 7.0, STDOUT);
        let expected = [("a::passes", 1.5), ("a::prints", 2.25), ("a::fails", 0.25)];
        assert_eq!(times.tests, expected.map(|(name, seconds)| (name.to_owned(), seconds)));
        assert_eq!((times.guest_seconds, times.wall_seconds), (4.0, 7.0));
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let times = GuestTimes::parse("linux-6.1", 7.0, STDOUT);
        assert_eq!(GuestTimes::from_text("linux-6.1", &times.to_text()), Some(times));
        assert_eq!(GuestTimes::from_text("a", "total 4.0"), None);
    }
}
