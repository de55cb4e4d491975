//! Garbage collection read from real processes, compared with what their runtimes report themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use runtimes::{GcReader, GcReading};
use snapshot::{GcSettings, GcUnread};
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
/// one whose layout has changed in between.
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

/// Builds the program with the installed release of Go.
fn build(directory: &TempDir, variant: Variant) -> PathBuf {
    let module = directory.path().join("module");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("main.go"), include_str!("go/main.go")).unwrap();
    std::fs::write(module.join("go.mod"), "module example.org/gc\n\ngo 1.19\n").unwrap();
    let program = directory.path().join(variant.name.replace([' ', ','], "-"));
    let cgo = if variant.is_external { "1" } else { "0" };
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .args(variant.arguments)
        .arg(".")
        .current_dir(&module)
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", cgo)
        .env("GOFLAGS", "-buildvcs=false")
        .output()
        .expect("the go command is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Compares a reading with the runtime's own report of the same cycle.
fn assert_equal(reading: &GcReading, reported: &Reported, what: &str) {
    let limit = reported.limit_bytes.filter(|&bytes| bytes < 1 << 47);
    assert_eq!(reading.cycles, reported.cycles, "cycles: {what}");
    assert_eq!(reading.pause_ns, Some(reported.pause_ns), "pauses: {what}");
    assert_eq!(reading.settings.gomaxprocs, Some(reported.gomaxprocs), "GOMAXPROCS: {what}");
    match (reading.goal_bytes, reading.limit_bytes) {
        (Some(goal_bytes), None) => assert_eq!(goal_bytes, reported.goal_bytes, "goal: {what}"),
        // Under a memory limit it moves with the memory that is given back after a cycle.
        (Some(goal_bytes), Some(limit_bytes)) => {
            assert!(goal_bytes <= limit_bytes && reported.goal_bytes <= limit_bytes, "{what}");
        }
        (None, _) => assert!(reported.goal_bytes >= 1 << 47, "goal: {what}: {reported:?}"),
    }
    match (reading.cpu_ns, reported.cpu_ns) {
        // The latest pause may be counted a little later than its cycle.
        (Some(read), Some(reported)) => {
            let is_near = read.abs_diff(reported) <= 1 + reported / 20;
            assert!(is_near, "{read} and {reported} ns: {what}");
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

/// A reading between two reports with the same number of cycles, and the second report.
fn at_rest(program: &mut Program, reader: &mut GcReader) -> (GcReading, Reported) {
    loop {
        let before = program.allocate(0);
        let reading = read(reader, program.pid());
        let after = program.allocate(0);
        if before.cycles == after.cycles {
            return (reading, after);
        }
    }
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
        let (before, reported) = at_rest(&mut program, &mut reader);
        assert_equal(&before, &reported, &what);
        program.allocate(300);
        let (after, reported) = at_rest(&mut program, &mut reader);
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
        check(&build(&directory, variant), variant.name);
    }
}

/// Reads `gofmt` of each release, as it was shipped and stripped, and compares the number of cycles
/// with those that the runtime logs.
#[test]
#[ignore = "only in `cargo xtask test --all`: downloads releases of Go"]
fn every_known_release_of_go_is_read_with_and_without_symbols() {
    let directory = TempDir::new().unwrap();
    let mut reader = GcReader::new("/proc".into());
    for release in RELEASES {
        let mut go = Command::new("go");
        let output = go.args(["env", "GOROOT"]).env("GOTOOLCHAIN", release).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let root = String::from_utf8(output.stdout).unwrap();
        let shipped = Path::new(root.trim()).join("bin/gofmt");
        let stripped = directory.path().join(release);
        let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&shipped).status();
        assert!(strip.expect("binutils are installed").success());
        for program in [&shipped, &stripped] {
            let mut child = Command::new(program)
                .envs([("GODEBUG", "gctrace=1"), ("GOGC", "80"), ("GOMAXPROCS", "2")])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // It reads up to the end of its input, which does not come.
            let mut input = child.stdin.take().unwrap();
            input.write_all(&b"//x\n".repeat(1 << 22)).unwrap();
            let reading = settled(&mut reader, child.id());
            child.kill().unwrap();
            let mut log = String::new();
            child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
            child.wait().unwrap();
            let logged = log.lines().filter(|line| line.starts_with("gc ")).count() as u64;
            let what = program.display();
            assert!(logged > 1 && reading.cycles == logged, "{what}: {logged}, {reading:?}");
            let GcSettings { gogc, gomaxprocs, .. } = reading.settings;
            assert_eq!((gogc, gomaxprocs), (Some(80), Some(2)), "{what}");
            assert_eq!(reading.cpu_ns.is_some(), release != "go1.19.13", "{what}");
            let (live, goal) = (reading.live_bytes.unwrap(), reading.goal_bytes.unwrap());
            // Stacks and globals count as well.
            assert!(goal >= live / 100 * 180 && goal < live * 2, "{what}: {reading:?}");
        }
    }
}

/// The reading once no cycle runs any more: three equal ones.
fn settled(reader: &mut GcReader, pid: u32) -> GcReading {
    let mut last = read(reader, pid);
    let mut equal = 0;
    while equal < 3 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = read(reader, pid);
        equal = if now == last && now.cycles > 0 { equal + 1 } else { 0 };
        last = now;
    }
    last
}

/// Collectors, by the flag that selects them.
const COLLECTORS: [&str; 3] = ["Serial", "G1", "Z"];

/// The programs with this name of all JDKs of this machine.
fn of_jdks(name: &str) -> Vec<PathBuf> {
    let homes = std::fs::read_dir("/usr/lib/jvm").expect("a JDK below /usr/lib/jvm");
    let mut found: Vec<_> = homes
        .filter_map(|home| std::fs::canonicalize(home.unwrap().path().join("bin").join(name)).ok())
        .collect();
    found.sort();
    found.dedup();
    assert!(!found.is_empty(), "no {name} below /usr/lib/jvm: install a JDK");
    found
}

/// Output of `jstat` of the newest JDK.
fn jstat(options: &[&str], pid: u32) -> String {
    let jstat = of_jdks("jstat").pop().unwrap();
    let output = Command::new(jstat).args(options).arg(pid.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Cycles and seconds that `jstat` reports of all collectors.
fn reported(pid: u32) -> (u64, f64) {
    let text = jstat(&["-gc"], pid);
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (heads, values) = (lines.next().unwrap(), lines.next().unwrap());
    let value = |head: &str| {
        let at = heads.iter().position(|one| *one == head).unwrap();
        values[at].replace(',', ".").parse().unwrap_or(0.0)
    };
    let cycles = ["YGC", "FGC", "CGC"].map(value).iter().sum::<f64>();
    (cycles as u64, value("GCT"))
}

/// All values that `jstat` knows of a JVM, by name.
fn counters(pid: u32) -> HashMap<String, String> {
    let text = jstat(&["-J-Djstat.showUnsupported=true", "-snap"], pid);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

#[test]
#[ignore = "only in `cargo xtask test --all`: needs a JDK"]
fn a_jvm_is_read_as_jstat_reports_it() {
    let directory = TempDir::new().unwrap();
    let source = directory.path().join("Load.java");
    std::fs::write(&source, include_str!("java/Load.java")).unwrap();
    let javac = of_jdks("javac").pop().unwrap();
    let compiled = Command::new(javac).args(["--release", "17"]).arg(&source).status().unwrap();
    assert!(compiled.success());
    let mut reader = GcReader::new("/proc".into());
    for java in of_jdks("java") {
        for collector in COLLECTORS {
            let what = format!("{}, {collector}", java.display());
            let mut command = Command::new(&java);
            command.args([&format!("-XX:+Use{collector}GC"), "-Xmx64m", "-cp"]);
            let child = command.arg(directory.path()).arg("Load").stdout(Stdio::piped()).spawn();
            let mut child = child.unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let before = read(&mut reader, child.id());
            let (cycles, seconds) = reported(child.id());
            let counters = counters(child.id());
            let after = read(&mut reader, child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(before.cycles > 10, "{what}: {before:?}");
            assert!((before.cycles..=after.cycles).contains(&cycles), "{what}: {cycles}");
            let pause = |reading: &GcReading| reading.pause_ns.unwrap() as f64 / 1e9;
            // `jstat` prints milliseconds.
            let is_between = pause(&before) - 0.001 <= seconds && seconds <= pause(&after) + 0.001;
            assert!(is_between, "{what}: {seconds}, {before:?}, {after:?}");
            assert_eq!(after.limit_bytes, Some(64 << 20), "{what}");
            let number = |name: &str| counters.get(name).map(|text| text.parse::<u64>().unwrap());
            let is_between = |of: fn(&GcReading) -> Option<u64>, reported: Option<u64>| {
                of(&before) <= reported && reported <= of(&after)
            };
            assert_eq!(number("sun.os.hrt.frequency"), Some(1_000_000_000), "{what}");
            let stopped_ns = number("sun.rt.safepointTime");
            assert!(stopped_ns.is_some_and(|time| time > 0), "{what}");
            assert!(is_between(|reading| reading.safepoint_ns, stopped_ns), "{what}: {after:?}");
            // ZGC leaves it at 0.
            let cpu_ns = number("sun.threads.total_gc_cpu_time").filter(|&time| time > 0);
            assert!(is_between(|reading| reading.cpu_ns, cpu_ns), "{what}: {after:?}");
            let names =
                (0..4).filter_map(|at| counters.get(&format!("sun.gc.collector.{at}.name")));
            assert_eq!(after.settings.collectors, names.cloned().collect::<Vec<_>>(), "{what}");
        }
    }
}

#[test]
#[ignore = "only in `cargo xtask test --all`: needs a JDK"]
fn a_jvm_without_performance_data_is_not_read_and_says_so() {
    let java = of_jdks("java").pop().unwrap();
    let directory = TempDir::new().unwrap();
    let source = directory.path().join("Load.java");
    std::fs::write(&source, include_str!("java/Load.java")).unwrap();
    let mut child = Command::new(java)
        .arg("-XX:-UsePerfData")
        .arg(&source)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let found = GcReader::new("/proc".into()).read(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, Err(GcUnread::NoPerfData));
}
