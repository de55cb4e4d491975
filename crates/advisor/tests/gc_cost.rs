//! Cost of reading the garbage collection of a node with a hundred Go containers, in CPU time and
//! memory.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use advisor::{GcCollector, GcReader, ROUND};
use peak_alloc::PeakAlloc;
use snapshot::{ContainerIdentity, ContainerRow, NodeSnapshot};
use tempfile::TempDir;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PROGRAMS: usize = 100;
/// Rounds of 30 minutes.
const ROUNDS: u32 = 180;
/// Rounds after which nothing new is allocated.
const WARM_UP: u32 = 6;
/// Largest share of a core that the readings may take: five times the target of 0.1 %, so that neither
/// other load nor a test build fails.
const MAX_SHARE: f64 = 0.005;
/// Largest growth of the allocated memory after the warm-up, bytes: buffers of the test harness.
const MAX_GROWTH: usize = 1 << 10;

/// A Go program that collects garbage when it is asked to.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(path);
        command.env("GOMAXPROCS", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    /// Allocates a megabyte and runs a cycle.
    fn collect(&mut self) {
        writeln!(self.input, "1").unwrap();
        self.output.read_line(&mut String::new()).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Builds the program that crate `runtimes` is tested with, without symbols.
fn build(directory: &TempDir) -> PathBuf {
    let source = include_str!("../../runtimes/tests/go/main.go");
    std::fs::write(directory.path().join("main.go"), source).unwrap();
    std::fs::write(directory.path().join("go.mod"), "module example.org/gc\n\ngo 1.19\n").unwrap();
    let program = directory.path().join("program");
    let output = Command::new("go")
        .args(["build", "-ldflags=-s -w", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(directory.path())
        .envs([("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0"), ("GOFLAGS", "-buildvcs=false")])
        .output()
        .expect("the go command is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn row(number: usize, program: &Program) -> ContainerRow {
    let labels = format!("namespace=\"shop\",pod=\"web-{number}\",container=\"app\"").into();
    ContainerRow {
        identity: Arc::new(ContainerIdentity { labels, ..ContainerIdentity::default() }),
        live: true,
        first_pid: Some(program.child.id()),
        ..ContainerRow::default()
    }
}

/// CPU time of all threads of this process, nanoseconds.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let text = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat"));
    let ns = |text: String| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    tasks.filter_map(|task| text(task.unwrap()).ok()).map(ns).sum()
}

/// The counters of a tenth of the programs move before each round. The rounds follow each other at
/// once, with the times of one round every ten seconds.
#[test]
#[ignore = "only in `cargo xtask test --all`: needs Go, and runs a hundred processes"]
fn readings_of_a_hundred_go_programs_take_little_time_and_no_more_memory() {
    let directory = TempDir::new().unwrap();
    let path = build(&directory);
    let mut programs: Vec<_> = (0..PROGRAMS).map(|_| Program::start(&path)).collect();
    programs.iter_mut().for_each(Program::collect);
    let containers = programs.iter().enumerate().map(|(number, program)| row(number, program));
    let snapshot =
        NodeSnapshot { sequence: 1, containers: containers.collect(), ..NodeSnapshot::default() };
    let mut reader = GcReader::new("/proc".into());
    let (mut collector, began) = (GcCollector::default(), Instant::now());
    let (mut spent_ns, mut first_ns, mut warm) = (0, 0, 0);
    for round in 0..ROUNDS {
        programs.iter_mut().skip(round as usize % 10).step_by(10).for_each(Program::collect);
        let before = cpu_ns();
        collector.read(&snapshot, &mut reader, began + ROUND * round);
        drop(collector.published());
        let taken = cpu_ns() - before;
        if round == 0 {
            first_ns = taken;
        }
        spent_ns += taken;
        if round == WARM_UP {
            warm = HEAP.current_usage();
        }
    }
    let growth = HEAP.current_usage().saturating_sub(warm);
    let share = spent_ns as f64 / 1e9 / (ROUND * ROUNDS).as_secs_f64();
    println!(
        "{PROGRAMS} Go programs: {:.4} % of a core, {} us for each reading, {} ms for the first round; \
         {growth} bytes more after {ROUNDS} rounds",
        share * 100.0,
        spent_ns / u64::from(ROUNDS) / PROGRAMS as u64 / 1000,
        first_ns / 1_000_000,
    );
    let read = collector.published();
    assert_eq!((read.containers.len(), read.unread.len()), (PROGRAMS, 0), "{:?}", read.unread);
    assert!(read.containers.values().all(|gc| gc.cycles >= u64::from(ROUNDS) / 10));
    assert!(growth <= MAX_GROWTH, "{growth} bytes");
    assert!(share <= MAX_SHARE, "{share}");
}
