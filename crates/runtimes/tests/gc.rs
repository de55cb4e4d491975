//! Garbage collection read from real processes, compared with what their runtimes report themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use runtimes::{GcReader, GcReading};
use tempfile::TempDir;

/// Ways to build a program.
#[derive(Debug, Clone, Copy)]
struct Variant {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Whether a C compiler links it.
    is_external: bool,
}

const VARIANTS: [Variant; 6] = [
    Variant { name: "plain", arguments: &[], is_external: false },
    Variant { name: "stripped", arguments: &["-ldflags=-s -w"], is_external: false },
    Variant { name: "pie", arguments: &["-buildmode=pie"], is_external: false },
    Variant {
        name: "stripped pie",
        arguments: &["-buildmode=pie", "-ldflags=-s -w"],
        is_external: false,
    },
    Variant {
        name: "stripped, linked by a C compiler",
        arguments: &["-ldflags=-s -w -linkmode=external"],
        is_external: true,
    },
    Variant {
        name: "stripped pie, linked by a C compiler",
        arguments: &["-buildmode=pie", "-ldflags=-s -w -linkmode=external"],
        is_external: true,
    },
];

/// Releases of Go: the last one of each minor version whose layout is known, and the first of the
/// one whose layout changed in between.
const RELEASES: [&str; 10] = [
    "go1.19.13",
    "go1.20.14",
    "go1.21.13",
    "go1.22.12",
    "go1.23.0",
    "go1.23.12",
    "go1.24.13",
    "go1.25.14",
    "go1.26.11",
    "go1.27.4",
];

/// What the Go runtime reports.
#[derive(Debug, PartialEq)]
struct Reported {
    cycles: u64,
    pause_ns: u64,
    gomaxprocs: u32,
    /// `None` before Go 1.20.
    cpu_ns: Option<u64>,
    goal_bytes: u64,
    /// `None` before Go 1.21, as the next two.
    live_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    /// The largest number if it is off.
    gogc: Option<u64>,
}

/// A running program.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &Path, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(path)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    /// Allocates megabytes, and returns what the runtime reports afterwards.
    fn allocate(&mut self, megabytes: u32) -> Reported {
        writeln!(self.input, "{megabytes}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let numbers: Vec<i128> =
            line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let at = |index: usize| u64::try_from(numbers[index]).ok();
        Reported {
            cycles: at(0).unwrap(),
            pause_ns: at(1).unwrap(),
            gomaxprocs: at(2).unwrap().try_into().unwrap(),
            cpu_ns: at(3),
            goal_bytes: at(4).unwrap(),
            live_bytes: at(5),
            limit_bytes: at(6),
            gogc: at(7),
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Builds the program with a release of Go, or with the installed one.
fn build(directory: &TempDir, release: Option<&str>, variant: Variant) -> PathBuf {
    let module = directory.path().join("module");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("main.go"), include_str!("go/main.go")).unwrap();
    std::fs::write(module.join("go.mod"), "module example.org/gc\n\ngo 1.19\n").unwrap();
    let name = format!("{}-{}", release.unwrap_or("installed"), variant.name.replace([' ', ','], "-"));
    let program = directory.path().join(name);
    let cgo = if variant.is_external { "1" } else { "0" };
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .args(variant.arguments)
        .arg(".")
        .current_dir(&module)
        .env("GOTOOLCHAIN", release.unwrap_or("local"))
        .env("CGO_ENABLED", cgo)
        .env("GOFLAGS", "-buildvcs=false")
        .output()
        .expect("the go command is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Compares a reading with the runtime's own report of the same moment: no cycle runs while the
/// program waits for the next line.
fn assert_equal(reading: &GcReading, reported: &Reported, what: &str) {
    let limit = reported.limit_bytes.filter(|&bytes| bytes < 1 << 47);
    assert_eq!(reading.cycles, reported.cycles, "cycles: {what}");
    assert_eq!(reading.pause_ns, Some(reported.pause_ns), "pauses: {what}");
    assert_eq!(reading.settings.gomaxprocs, Some(reported.gomaxprocs), "GOMAXPROCS: {what}");
    assert_eq!(reading.goal_bytes, Some(reported.goal_bytes), "goal: {what}");
    match (reading.cpu_ns, reported.cpu_ns) {
        // The runtime reports seconds as a floating-point number.
        (Some(read), Some(reported)) => {
            assert!(read.abs_diff(reported) <= 1, "{read} and {reported} ns: {what}");
        }
        (read, reported) => assert_eq!(read, reported, "{what}"),
    }
    if let Some(live_bytes) = reported.live_bytes {
        let is_known = reported.cycles > 0;
        assert_eq!(reading.live_bytes, is_known.then_some(live_bytes), "live heap: {what}");
        assert_eq!(reading.limit_bytes, limit, "limit: {what}");
        let gogc = reported.gogc.map(|gogc| gogc as i32);
        assert_eq!(reading.settings.gogc, gogc, "GOGC: {what}");
    }
}

fn read(reader: &mut GcReader, pid: u32) -> GcReading {
    reader.read(pid).unwrap().expect("a Go program")
}

/// Reads one build in several states, each compared with the runtime's own report.
fn check(program: &Path, what: &str) {
    let mut reader = GcReader::new("/proc".into());
    for environment in [
        &[("GOMAXPROCS", "2")][..],
        &[("GOGC", "50"), ("GOMAXPROCS", "1")],
        &[("GOGC", "off"), ("GOMEMLIMIT", "64MiB")],
        &[("GOMEMLIMIT", "48MiB"), ("GOGC", "400")],
    ] {
        let mut program = Program::start(program, environment);
        let what = format!("{what}, {environment:?}");
        let reported = program.allocate(0);
        let before = read(&mut reader, program.pid());
        assert_equal(&before, &reported, &what);
        let reported = program.allocate(300);
        let after = read(&mut reader, program.pid());
        assert_equal(&after, &reported, &what);
        assert!(after.cycles > before.cycles, "{what}");
        let share = after.share_since(&before);
        assert!(share.is_none_or(|share| share > 0.0 && share < 1.0), "{share:?}: {what}");
    }
}

#[test]
fn go_is_read_as_its_runtime_reports_itself() {
    let directory = TempDir::new().unwrap();
    for variant in VARIANTS {
        check(&build(&directory, None, variant), variant.name);
    }
}

#[test]
#[ignore = "only in `cargo xtask test --all`: downloads ten releases of Go"]
fn every_known_release_of_go_is_read_as_it_reports_itself() {
    let directory = TempDir::new().unwrap();
    for release in RELEASES {
        for variant in &VARIANTS[..4] {
            let program = build(&directory, Some(release), *variant);
            check(&program, &format!("{release}, {}", variant.name));
        }
    }
}
