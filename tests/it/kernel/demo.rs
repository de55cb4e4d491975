//! `cpuwarden demo` on this kernel: its table, and its cleanup.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{binary, eventually, turn};

const MOUNTS: &str = "/sys/fs/cgroup";

#[test]
fn the_table_shows_the_limit_that_throttles_a_container() {
    let _turn = turn();
    let demo = Demo::start(&["--once", "8"]);
    let pid = demo.pid();
    let page = demo.end();
    assert!(page.starts_with("cpuwarden demo: real workloads in real cgroups"), "{page}");
    assert!(!page.contains('\x1b'), "escape codes: {page:?}");
    let rows = rows(&page);
    assert!(rows.contains_key("shop/checkout spinner"), "{page}");
    let spinner = &rows["shop/checkout spinner"];
    assert!(spinner.throttled > 50 && spinner.peak > 50 && spinner.periods > 50, "{page}");
    assert_eq!((spinner.limit.as_str(), spinner.by.as_str()), ("0.20", "own"), "{page}");
    // A quota on the pod throttles the pod, and its container with it.
    let (pod, container) = (&rows["data/ingest (pod)"], &rows["data/ingest pod-quota"]);
    assert_eq!(
        (pod.by.as_str(), container.by.as_str(), container.limit.as_str()),
        ("own", "above", "0.30"),
        "{page}"
    );
    assert!(pod.throttled > 0, "{page}");
    let burst = &rows["shop/thumbnails burst"];
    // It is idle most of the time: a large share of a few periods is throttled.
    assert!(burst.peak > 0 && burst.throttled < burst.periods && burst.by == "own", "{page}");
    let idle = &rows["shop/mailer idle"];
    assert_eq!((idle.throttled, idle.peak, idle.by.as_str()), (0, 0, "-"), "{page}");
    for neighbor in ["search/index neighbor-a", "batch/encode neighbor-b"] {
        assert_eq!(rows[neighbor].by, "-", "{page}");
    }
    assert_eq!(cgroups_of(pid), [] as [PathBuf; 0]);
}

#[test]
fn a_signal_removes_all_cgroups_and_restores_controllers() {
    let _turn = turn();
    let handed_down = Path::new(MOUNTS).join("cgroup.subtree_control");
    // On v2, disables cpuset so that the demo must enable it. Works in the QEMU node; a machine
    // whose cgroups use the controller rejects it, or gets it back below.
    let had_cpuset = fs::read_to_string(&handed_down).is_ok_and(|text| text.contains("cpuset"));
    let _ = had_cpuset.then(|| fs::write(&handed_down, "-cpuset"));
    let before = fs::read_to_string(&handed_down).ok();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let demo = Demo::start(&["--duration", "10m"]);
        let pid = demo.pid();
        eventually("workloads in all six containers", || processes_of(pid).len() == 6);
        let processes = processes_of(pid);
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
        assert_eq!(demo.end(), "", "a table though it was interrupted");
        assert_eq!(cgroups_of(pid), [] as [PathBuf; 0], "after {signal:?}");
        for process in processes {
            assert!(
                !Path::new(&format!("/proc/{process}")).exists(),
                "process {process} lives on after {signal:?}"
            );
        }
        assert_eq!(fs::read_to_string(&handed_down).ok(), before, "after {signal:?}");
    }
    let _ = had_cpuset.then(|| fs::write(&handed_down, "+cpuset"));
}

#[test]
fn the_next_demo_removes_the_cgroups_of_a_killed_one() {
    let _turn = turn();
    let mut killed = Demo::start(&["--duration", "10m"]);
    let pid = killed.pid();
    eventually("workloads in all six containers", || processes_of(pid).len() == 6);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    eventually("its workloads have ended", || processes_of(pid).is_empty());
    assert!(!cgroups_of(pid).is_empty(), "nothing was left, so nothing is tested");
    Demo::start(&["--once", "3"]).end();
    assert_eq!(cgroups_of(pid), [] as [PathBuf; 0]);
}

/// A running demo, killed on drop.
struct Demo {
    child: Child,
    temporary: TempDir,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command
            .args(["demo", "--listen", "127.0.0.1:0"])
            .args(args)
            .env("TMPDIR", temporary.path());
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, temporary }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a successful end and returns the output.
    fn end(mut self) -> String {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        // Both outputs fit into a pipe's buffer.
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {stderr}");
        assert_eq!(stderr, "", "the demo's log is quiet");
        assert_eq!(fs::read_dir(self.temporary.path()).unwrap().count(), 0, "files are left");
        stdout
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    limit: String,
    /// Percent; 0 without a quota.
    throttled: u32,
    peak: u32,
    /// Throttled share of the active periods, percent.
    periods: u32,
    by: String,
}

/// Rows by `namespace/pod container`.
fn rows(page: &str) -> BTreeMap<String, Row> {
    let lines = page
        .lines()
        .skip_while(|line| !line.starts_with("POD ") || !line.contains("CONTAINER"))
        .skip(1)
        .take_while(|line| !line.is_empty());
    lines
        .map(|line| {
            // "100 %" is one cell.
            let line = line.replace(" %", "%");
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [pod, container, _cores, limit, throttled, peak, periods, _seconds, by] = cells[..]
            else {
                panic!("{line}")
            };
            let percent =
                |cell: &str| cell.strip_suffix('%').map_or(0, |number| number.parse().unwrap());
            let row = Row {
                limit: limit.into(),
                throttled: percent(throttled),
                peak: percent(peak),
                periods: percent(periods),
                by: by.into(),
            };
            (format!("{pod} {container}"), row)
        })
        .collect()
}

/// The root cgroups of the demo with this process id.
fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    let name = format!("cpuwarden-demo-{pid}");
    let mounts = fs::read_dir(MOUNTS).unwrap().map(|entry| entry.unwrap().path());
    let tops = mounts.chain([MOUNTS.into()]).map(|mount| mount.join(&name));
    tops.filter(|top| top.exists()).collect()
}

/// The processes in its containers.
fn processes_of(pid: u32) -> Vec<String> {
    let mut found: Vec<String> =
        cgroups_of(pid).iter().flat_map(|top| processes_below(top)).collect();
    found.sort();
    // On v1 each process is in several hierarchies.
    found.dedup();
    found
}

fn processes_below(directory: &Path) -> Vec<String> {
    let own = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = children.flat_map(|child| processes_below(&child.path()));
    own.lines().map(str::to_owned).chain(below).collect()
}
