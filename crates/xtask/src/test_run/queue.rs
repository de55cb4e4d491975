//! Queues of test binaries.

use std::fs;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::libtest::{Follower, Summary, TargetTime};
use super::parts;
use super::priority::Priority;
use super::targets::Target;
use crate::{process, workspace};

/// Maximum wait for output after the program has ended: a process that a test left behind may hold
/// the pipe open.
const LATE_OUTPUT: Duration = Duration::from_secs(2);

/// Tests of `it` at once, most of which wait. Those that load or measure the CPUs run one after the
/// other; while they wait for their turn, others run.
const TEST_THREADS: &str = "4";

/// Nodes at once. A node takes a whole CPU of the host; after the host tests two are free.
const NODES_AT_ONCE: &str = "2";

/// Variable of the tests with a browser: the directory for their pictures.
const PICTURES: &str = "CPUWARDEN_SCREENSHOTS";

/// Target without libtest's options.
const WITHOUT_LIBTEST: &str = "-p placement --test vectors";

/// One run of a test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    target: Target,
    /// Arguments for the binary: filters.
    arguments: Vec<String>,
    /// Tests at once.
    threads: &'static str,
    /// Directory in which tests with a browser write what they see, if they do.
    pictures: Option<PathBuf>,
}

/// All runs, by queue.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Emulated nodes.
    pub(super) nodes: Vec<Run>,
    /// Tests that load the CPUs of this machine.
    pub(super) host: Vec<Run>,
    /// Tests that load nothing.
    pub(super) small: Vec<Run>,
}

impl Plan {
    /// Distributes the targets; `all` adds what only a release needs.
    pub(super) fn new(targets: Vec<Target>, all: bool) -> Self {
        let mut plan = Self::default();
        let pictures = all.then(|| workspace::root().join("target/screenshots"));
        for target in targets {
            let runs = |arguments: Vec<Vec<String>>, threads| {
                let run = |arguments| {
                    let (target, pictures) = (target.clone(), pictures.clone());
                    Run { target, arguments, threads, pictures }
                };
                arguments.into_iter().map(run).collect::<Vec<_>>()
            };
            let parts = parts::of(&target.arguments, all);
            plan.nodes.extend(runs(parts.nodes, NODES_AT_ONCE));
            plan.host.extend(runs(parts.host, TEST_THREADS));
            plan.small.extend(runs(parts.small, TEST_THREADS));
        }
        plan.small.sort_by_key(|run| parts::rank(&run.target.arguments));
        plan
    }
}

/// Runs that nothing has taken yet.
#[derive(Debug)]
pub(super) struct Queue<'a>(Mutex<std::slice::Iter<'a, Run>>);

impl<'a> Queue<'a> {
    pub(super) fn new(runs: &'a [Run]) -> Self {
        Self(Mutex::new(runs.iter()))
    }

    fn next(&self) -> Option<&'a Run> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// Runs the binaries of a queue one after the other, until the queue is empty.
pub(super) fn run(name: &str, queue: &Queue<'_>, priority: Priority) -> Summary {
    let mut sum = Summary::default();
    while let Some(run) = queue.next() {
        let began = Instant::now();
        let mut follower = Follower::new(&run.target.arguments);
        let mut output = Vec::new();
        let ended = run.follow(priority, |line| {
            follower.follow(String::from_utf8_lossy(line).trim_end());
            output.extend_from_slice(line);
        });
        let (is_success, cpu) = match ended {
            Ok((status, cpu)) => (status.success(), cpu),
            Err(error) => {
                output.extend_from_slice(format!("{error}\n").as_bytes());
                (false, Duration::ZERO)
            }
        };
        let wall = began.elapsed();
        let line = run.describe();
        // One write: the queues share the output. If it cannot be written, the result still counts.
        let header = format!("\n==> {name}: {line} ({:.0} s)\n", wall.as_secs_f64());
        let _ = io::stdout().lock().write_all(&[header.as_bytes(), &output].concat());
        sum.add(follower.finish(is_success));
        sum.targets.push(TargetTime { queue: name.to_owned(), target: line, wall, cpu });
    }
    sum
}

impl Run {
    fn describe(&self) -> String {
        let arguments = self.arguments.join(" ");
        let separator = if arguments.is_empty() { "" } else { " -- " };
        let mut line = format!("{}{separator}{arguments}", self.target.arguments);
        if line.len() > 100 {
            line.truncate(line.floor_char_boundary(99));
            line.push('…');
        }
        line
    }

    /// Runs the program, passes on each line of its output, and returns its exit status and the CPU
    /// time of it and its children.
    fn follow(
        &self,
        priority: Priority,
        each: impl FnMut(&[u8]),
    ) -> io::Result<(ExitStatus, Duration)> {
        let (reader, writer) = io::pipe()?;
        if let Some(pictures) = &self.pictures {
            fs::create_dir_all(pictures)?;
        }
        let mut command = self.command(priority);
        let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // Closes this process's end of the pipe; otherwise the reader would never see its end.
        drop(command);
        follow(&mut child, &lines(BufReader::new(reader)), each)?;
        process::wait(&mut child)
    }

    fn command(&self, priority: Priority) -> Command {
        let mut command = priority.command(&self.target.program);
        command.args(&self.arguments).current_dir(&self.target.directory).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.target.directory);
        command.envs(self.pictures.as_ref().map(|directory| (PICTURES, directory)));
        if self.target.arguments != WITHOUT_LIBTEST {
            // Durations are an unstable option of libtest, which a release accepts with this
            // variable.
            command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
        }
        let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| self.threads.into());
        command.env("RUST_TEST_THREADS", threads);
        command
    }
}

fn lines(mut reader: impl io::BufRead + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Passes on the lines until the program has ended. Leaves it a zombie.
fn follow(
    child: &mut Child,
    lines: &Receiver<Vec<u8>>,
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let pid = Pid::from_child(child);
    let has_ended = |more: WaitIdOptions| {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | more;
        waitid(WaitId::Pid(pid), options)
    };
    loop {
        match lines.recv_timeout(LATE_OUTPUT) {
            Ok(line) => each(&line),
            Err(RecvTimeoutError::Disconnected) => {
                has_ended(WaitIdOptions::empty())?;
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {
                if has_ended(WaitIdOptions::NOHANG)?.is_some() {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, kill_process};

    use super::*;

    fn shell(script: &str) -> (Summary, Vec<String>) {
        let target = Target {
            arguments: WITHOUT_LIBTEST.into(),
            program: "/bin/sh".into(),
            directory: "/".into(),
        };
        let arguments = vec!["-c".into(), script.into()];
        let run = Run { target, arguments, threads: "1", pictures: None };
        let mut lines = Vec::new();
        let mut follower = Follower::new("x");
        let (status, _) = run
            .follow(Priority::Normal, |line| {
                let line = String::from_utf8_lossy(line).trim_end().to_owned();
                follower.follow(&line);
                lines.push(line);
            })
            .unwrap();
        (follower.finish(status.success()), lines)
    }

    #[test]
    fn only_a_release_takes_pictures() {
        let target = Target {
            arguments: "-p endpoint --test ui".to_owned(),
            program: "ui".into(),
            directory: "/".into(),
        };
        let has_pictures = |all| {
            let plan = Plan::new(vec![target.clone()], all);
            let command = plan.small[0].command(Priority::Normal);
            command.get_envs().any(|(name, value)| name == PICTURES && value.is_some())
        };
        assert!(has_pictures(true) && !has_pictures(false));
    }

    #[test]
    fn the_longest_of_the_small_tests_come_first() {
        let targets =
            ["-p a --lib", "-p analysis --test it", "-p b --lib", "-p endpoint --test ui"].map(
                |arguments| Target {
                    arguments: arguments.to_owned(),
                    program: "/bin/true".into(),
                    directory: "/".into(),
                },
            );
        let plan = Plan::new(targets.to_vec(), false);
        let queue = Queue::new(&plan.small);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.next()).map(|run| run.target.arguments.as_str()).collect();
        let expected =
            ["-p endpoint --test ui", "-p analysis --test it", "-p a --lib", "-p b --lib"];
        assert_eq!(order, expected);
    }

    #[test]
    fn output_of_both_streams_is_read_in_order() {
        let (_, lines) = shell("echo a; echo b >&2; echo c; pwd");
        assert_eq!(lines, ["a", "b", "c", "/"]);
    }

    #[test]
    fn a_process_that_a_test_left_behind_does_not_hold_up_the_run() {
        let result = "test result: ok. 1 passed; 0 failed; 0 ignored;";
        let (summary, lines) = shell(&format!("sleep 1000 & echo $!; echo '{result}'"));
        let sleeper = Pid::from_raw(lines[0].parse().unwrap()).unwrap();
        // Fails if the run waited for the end of the process.
        kill_process(sleeper, Signal::KILL).unwrap();
        assert!(summary.is_success());
    }
}
