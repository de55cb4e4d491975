//! Go programs under quotas: the agent's findings and advice, and the throttling after the advice
//! is applied.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Agent, Cgroup, Qos, RealTree, Running, binary, eventually};

/// Share of throttled periods that the advice aims to stay below: its objective.
const OBJECTIVE: f64 = 0.01;
/// Factor by which all cases together may exceed the objective. Cases with thirty periods each are
/// too few to meet it exactly.
const SLACK: f64 = 3.0;
/// Share above which a quota clearly throttles; the finding starts at half of it.
const REAL: f64 = 0.1;

/// Goroutines per burst, CPU time of each, and time between bursts: 120 ms per burst.
const LOAD: [&str; 3] = ["8", "15ms", "1530ms"];
const BURST_EVERY: Duration = Duration::from_millis(1530);
/// Duration of the second run: ten bursts.
const RUN: Duration = Duration::from_millis(15_300);

/// A program built with one Go release.
struct Build {
    program: PathBuf,
    /// Version of the Go release, as `go version` prints it.
    version: String,
}

/// One container: a program under a quota.
#[derive(Clone)]
struct Case<'a> {
    build: &'a Build,
    quota_ms: f64,
    gomaxprocs: Option<u32>,
}

/// A running case.
struct Scene<'a> {
    case: Case<'a>,
    id: String,
    cgroup: Cgroup,
    /// Value of `runtime.GOMAXPROCS(0)`.
    parallelism: u64,
    _running: Running,
}

#[test]
#[ignore = "only in `cargo xtask test --all`: every quota and parallelism, and an old Go"]
fn following_the_advice_ends_throttling_of_every_go_program() {
    let directory = TempDir::new().unwrap();
    // Go 1.25 and later follow the limit. The other build uses the number of CPUs: its Go is older,
    // or its go.mod is.
    let follows = Build::new(&directory, &recent_go(), "1.25");
    let ignores = Build::new(&directory, Path::new("go"), "1.19");
    let mut cases = Vec::new();
    for quota_ms in [50.0, 100.0, 200.0] {
        cases.extend([None, Some(1), Some(8)].map(|gomaxprocs| Case {
            build: &ignores,
            quota_ms,
            gomaxprocs,
        }));
        cases.push(Case { build: &follows, quota_ms, gomaxprocs: None });
    }
    second_run(&first_run(&cases));
}

#[test]
fn following_the_advice_ends_throttling_of_a_go_program() {
    let directory = TempDir::new().unwrap();
    let go = recent_go();
    let (follows, ignores) =
        (Build::new(&directory, &go, "1.25"), Build::new(&directory, &go, "1.19"));
    let case = |build, quota_ms, gomaxprocs| Case { build, quota_ms, gomaxprocs };
    let cases = [
        case(&ignores, 50.0, None),
        case(&ignores, 50.0, Some(1)),
        case(&ignores, 100.0, Some(8)),
        case(&follows, 100.0, None),
    ];
    second_run(&first_run(&cases));
}

fn recent_go() -> PathBuf {
    xtask::tools::go().unwrap_or_else(|error| panic!("{error}"))
}

/// Runs the cases with an agent, and returns them with its patches applied.
fn first_run<'a>(cases: &[Case<'a>]) -> Vec<Case<'a>> {
    let tree = RealTree::new();
    let scenes = start(&tree, cases);
    let agent = Agent::on(&tree, &["--advice-after", "12s"]);
    let before: Vec<_> = scenes.iter().map(|scene| counts(&scene.cgroup)).collect();
    eventually("a limit for every container", || {
        let rows = report(&agent);
        scenes
            .iter()
            .all(|scene| rows.get(&scene.id).is_some_and(|row| row["cpu"]["limit"].is_object()))
    });
    let (rows, patches) = (report(&agent), patches(&agent));
    let mut advised = Vec::new();
    for (scene, before) in scenes.iter().zip(before) {
        let row = &rows[&scene.id];
        let share = share(before, counts(&scene.cgroup));
        println!(
            "{}: {:.0} % throttled, advised {}",
            scene.case,
            share * 100.0,
            row["cpu"]["limit"]
        );
        assert!(scene.case.quota_ms > 50.0 || share >= REAL, "{}: {share}", scene.case);
        scene.assert_detected(row);
        scene.assert_found(row, share);
        advised.push(scene.case.patched(patches.get(&scene.id)));
    }
    advised
}

/// Runs the cases with the advice applied.
fn second_run(cases: &[Case<'_>]) {
    let tree = RealTree::new();
    let scenes = start(&tree, cases);
    let before: Vec<_> = scenes.iter().map(|scene| counts(&scene.cgroup)).collect();
    std::thread::sleep(RUN);
    let mut all = (0, 0);
    for (scene, before) in scenes.iter().zip(before) {
        let after = counts(&scene.cgroup);
        let share = share(before, after);
        println!(
            "as advised, {}: {:.1} % throttled of {} periods",
            scene.case,
            share * 100.0,
            after.0 - before.0
        );
        assert!(
            after.0 - before.0 >= 15,
            "{}: ten bursts have at least fifteen periods",
            scene.case
        );
        // With so few periods, one throttled period exceeds the objective. A thread that should
        // fill one core exceeds it now and then.
        assert!(share < REAL, "{}: {share}", scene.case);
        all = (all.0 + after.0 - before.0, all.1 + after.1 - before.1);
    }
    let share = share((0, 0), all);
    assert!(
        share <= SLACK * OBJECTIVE,
        "{share} of all periods, throttled though everything is as advised"
    );
}

/// Starts the cases one after the other, so that their bursts do not overlap.
fn start<'a>(tree: &RealTree, cases: &[Case<'a>]) -> Vec<Scene<'a>> {
    let pod = tree.pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0009");
    let gap = BURST_EVERY / u32::try_from(cases.len()).unwrap();
    let scenes = cases.iter().enumerate().map(|(number, case)| {
        std::thread::sleep(gap);
        let id = format!("{:064x}", number + 1);
        let cgroup = pod.child(&id);
        cgroup.set_quota_usec((case.quota_ms * 1000.0) as u64, 100_000);
        let mut command = cgroup.command(&case.build.program);
        command.args(LOAD).env_remove("GOMAXPROCS").env_remove("GODEBUG");
        command.envs(case.gomaxprocs.map(|threads| ("GOMAXPROCS", threads.to_string())));
        let (running, printed) = Running::start(command, |line| line.starts_with("GOMAXPROCS "));
        let parallelism = printed.lines().last().unwrap()["GOMAXPROCS ".len()..].parse().unwrap();
        Scene { case: case.clone(), id, cgroup, parallelism, _running: running }
    });
    scenes.collect()
}

impl Build {
    /// Builds the program with this Go command, as a module with this language version.
    fn new(directory: &TempDir, go: &Path, language: &str) -> Self {
        let module = directory.path().join(language);
        std::fs::create_dir(&module).unwrap();
        std::fs::write(module.join("main.go"), include_str!("burst/main.go")).unwrap();
        std::fs::write(
            module.join("go.mod"),
            format!("module example.org/burst\n\ngo {language}\n"),
        )
        .unwrap();
        let run = |args: &[&str]| {
            let mut command = Command::new(go);
            command
                .args(args)
                .current_dir(&module)
                .env("CGO_ENABLED", "0")
                .env("GOTOOLCHAIN", "local");
            command
                .env("GOCACHE", xtask::tools::go_cache())
                .env_remove("GOROOT")
                .env_remove("GOFLAGS");
            let output = command.output().unwrap_or_else(|error| {
                panic!("no Go: {}: {error}; remedy: apt-get install golang-go", go.display());
            });
            assert!(
                output.status.success(),
                "{args:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        };
        run(&["build", "-o", "burst"]);
        // The output is `go version go1.19.8 linux/amd64`.
        let version = run(&["version"]).split(' ').nth(2).unwrap().to_owned();
        Self { program: module.join("burst"), version }
    }
}

impl Scene<'_> {
    fn assert_detected(&self, row: &Value) {
        let runtime = &row["runtime"];
        assert_eq!(
            (&runtime["language"], &runtime["version"]),
            (&"go".into(), &(*self.case.build.version).into())
        );
        assert_eq!(runtime["module"], "example.org/burst", "{}", self.case);
        assert_eq!(runtime["parallelism"], self.parallelism, "{}: {runtime}", self.case);
        let is_set = self.case.gomaxprocs.is_some();
        assert_eq!(
            runtime["parallelismSource"] == "GOMAXPROCS",
            is_set,
            "{}: {runtime}",
            self.case
        );
    }

    fn assert_found(&self, row: &Value, share: f64) {
        let mut findings = row["findings"].as_array().unwrap().iter();
        let is_found = findings.any(|finding| finding["kind"] == "throttled-by-own-quota");
        // Two cores always suffice for 120 ms; whether one core suffices depends on the
        // parallelism.
        assert!(self.case.quota_ms < 200.0 || share == 0.0, "{}: {share}", self.case);
        assert!(is_found || share < REAL, "{}: {share}, and no finding", self.case);
        assert!(!is_found || share > OBJECTIVE, "{}: {share}, and a finding", self.case);
        assert!(!is_found || row["cpu"]["limit"]["isLowerBound"] == true, "{}: {row}", self.case);
    }
}

impl Case<'_> {
    /// The case with a container's patch applied.
    fn patched(&self, container: Option<&Value>) -> Self {
        let mut patched = self.clone();
        let Some(container) = container else { return patched };
        if let Some(cpu) = container["resources"]["limits"]["cpu"].as_str() {
            patched.quota_ms = cpu.strip_suffix('m').unwrap().parse::<f64>().unwrap() / 10.0;
        }
        let variables = container["env"].as_array().into_iter().flatten();
        for variable in variables.filter(|variable| variable["name"] == "GOMAXPROCS") {
            patched.gomaxprocs = variable["value"].as_str().unwrap().parse().ok();
        }
        patched
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = self.gomaxprocs.map_or_else(|| "unset".to_owned(), |threads| threads.to_string());
        write!(out, "{}, {} ms, GOMAXPROCS {set}", self.build.version, self.quota_ms)
    }
}

/// Containers of `/api/v1/advice` by name.
fn report(agent: &Agent) -> BTreeMap<String, Value> {
    let (status, body) = agent.get("/api/v1/advice");
    assert_eq!(status, 200, "{body}");
    let report: Value = serde_json::from_str(&body).unwrap();
    let rows = report["containers"].as_array().unwrap().iter();
    rows.map(|row| (row["container"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Containers of `cpuwarden advise -o patch` by name.
fn patches(agent: &Agent) -> BTreeMap<String, Value> {
    let output = Command::new(binary())
        .args(["advise", "--address", &agent.address().to_string(), "-o", "patch"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("---\n").filter(|document| !document.is_empty());
    let containers = documents.flat_map(|document| {
        let patch: Value = serde_saphyr::from_str(document).unwrap();
        patch["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone()
    });
    containers
        .map(|container| (container["name"].as_str().unwrap().to_owned(), container))
        .collect()
}

/// Kernel counters `nr_periods` and `nr_throttled`.
fn counts(cgroup: &Cgroup) -> (u64, u64) {
    let stat = cgroup.cpu_stat();
    (stat["nr_periods"], stat["nr_throttled"])
}

fn share(before: (u64, u64), after: (u64, u64)) -> f64 {
    let (periods, throttled) = (after.0 - before.0, after.1 - before.1);
    throttled as f64 / periods.max(1) as f64
}
