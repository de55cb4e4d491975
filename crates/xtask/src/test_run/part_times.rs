//! Wall and CPU time of the parts of a run, kept in `target/test-times/parts`.
//!
//! Parts run at the same time, each in a thread of its own: the CPU time of a part is that of the
//! programs that its thread waited for.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process;

/// Times of the parts that have ended.
#[derive(Debug, Default)]
pub(super) struct PartTimes(Mutex<Vec<PartTime>>);

#[derive(Debug)]
struct PartTime {
    part: String,
    wall: Duration,
    cpu: Duration,
}

impl PartTimes {
    /// Runs a part in this thread, and prints its times.
    pub(super) fn timed<T>(&self, part: &str, run: impl FnOnce() -> T) -> T {
        eprintln!("==> {part}");
        let (began, before) = (Instant::now(), process::cpu_time());
        let result = run();
        let (wall, cpu) = (began.elapsed(), process::cpu_time() - before);
        let seconds = [wall, cpu].map(|time| time.as_secs_f64());
        eprintln!("==> {part} took {:.0} s, {:.0} s of CPU time", seconds[0], seconds[1]);
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(PartTime { part: part.to_owned(), wall, cpu });
        result
    }

    /// Writes the times to a file, one line per part in the order of their ends, and returns the
    /// lines.
    pub(super) fn keep(&self, path: &Path) -> io::Result<String> {
        let text = self.describe();
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, &text)?;
        Ok(text)
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for time in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let [wall, cpu] = [time.wall, time.cpu].map(|time| time.as_secs_f64());
            let _ = writeln!(text, "{wall:7.0} s wall {cpu:7.0} s CPU  part {}", time.part);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Runs a shell that uses some hundredths of a second of CPU time.
    fn work() {
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        process::run(Command::new("sh").args(["-c", script])).unwrap();
    }

    #[test]
    fn each_part_has_the_cpu_time_of_its_own_programs() {
        let times = PartTimes::default();
        thread::scope(|scope| {
            scope.spawn(|| times.timed("busy", work));
            // It ends after the other part has used its time.
            times.timed("waiting", || {
                let has_ended = || !times.0.lock().unwrap().is_empty();
                while !has_ended() {
                    thread::yield_now();
                }
            });
        });
        // The next part in the same thread.
        times.timed("busy again", work);
        let kept = times.0.lock().unwrap();
        let of = |part: &str| kept.iter().find(|time| time.part == part).unwrap();
        let least = Duration::from_millis(50);
        assert!(of("busy").cpu >= least && of("busy again").cpu >= least, "{kept:?}");
        assert_eq!(of("waiting").cpu, Duration::ZERO);
    }

    #[test]
    fn the_file_has_what_is_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test-times/parts");
        let times = PartTimes::default();
        times.timed("build", || ());
        times.timed("host tests", || ());
        let text = times.keep(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let expected = ["build", "host tests"]
            .map(|part| format!("      0 s wall       0 s CPU  part {part}"));
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
