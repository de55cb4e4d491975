//! `cpuwarden record` and `cpuwarden replay`: real cgroups, recorded, killed and replayed.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use api::{ContainerFrame, CpuFrame, Frame};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use timeline::recording::{self, Origin, Recording};

use crate::support::http;
use crate::support::{Agent, Cgroup, Qos, RealTree, Workload, binary, eventually};

const UID: &str = "0f59d45b-7d5e-4b3a-9c0e-2f1c3a5b7d9e";
const CONTAINER: &str = "1d9e4cf8b1c34be0a2d4a5f60718293a4b5c6d7e8f90a1b2c3d4e5f6a7b8c9d0";

/// A running `cpuwarden record` or `replay`, killed on drop.
pub(crate) struct Recorder(Child);

impl Recorder {
    /// Starts the recorder in a cgroup of the tree: a busy machine does not delay it.
    fn start(tree: &RealTree, cgroup: &Cgroup, dir: &Path) -> Self {
        let kubepods = tree.kubepods().path().to_str().unwrap();
        let mut command = cgroup.command(binary());
        command.arg("record").arg(dir).args(["--size=1MiB", "--pod-source=none"]);
        command.args(["--sched-trace=off", "--cpu-budget=1000", "--kubepods", kubepods]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_agent_records_until_it_ends_and_resumes_after_a_failure() {
    let tree = RealTree::beside_others();
    let container = tree.pod(Qos::Burstable, UID).child(CONTAINER);
    container.set_quota_usec(5_000, 100_000);
    let _load = container.spawn(&Workload::Spin { threads: 1 });
    let dir = tempfile::tempdir().unwrap();
    let ring = dir.path().join("ring");
    let flags = [
        format!("--kubepods={}", tree.kubepods().path().display()),
        format!("--record={},1MiB", ring.display()),
        "--ui=off".to_owned(),
        "--pod-source=none".to_owned(),
        "--sched-trace=off".to_owned(),
    ];
    let cgroup = tree.above().child("agent");
    let agent = Agent::start_in(&cgroup, &flags);
    eventually("seconds on the disk", || times(&ring).len() >= 3);
    assert_eq!(agent.metrics().value("cpuwarden_recording", &[]), Some(1.0));
    assert!(agent.signal(Signal::TERM).0.success());
    let text = replay(&ring, &["--output=json", "--once"]);
    let frame: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(frame["containers"][0]["uid"], UID, "{frame}");

    // A directory in which nothing can be created.
    let mut flags = flags;
    flags[1] = "--record=/proc/recording".to_owned();
    let agent = Agent::start_in(&cgroup, &flags);
    eventually("the failure", || agent.metrics().value("cpuwarden_recording", &[]) == Some(0.0));
    assert!(agent.log().contains("--record: "), "{}", agent.log());
    assert_eq!(agent.get("/readyz").0, 200);
}

#[test]
fn a_restarted_agent_shows_and_saves_the_time_before_its_start() {
    let tree = RealTree::beside_others();
    let container = tree.pod(Qos::Burstable, UID).child(CONTAINER);
    let _load = container.spawn(&Workload::Spin { threads: 1 });
    let dir = tempfile::tempdir().unwrap();
    let ring = dir.path().join("ring");
    let flags = [
        format!("--kubepods={}", tree.kubepods().path().display()),
        format!("--record={}", ring.display()),
        "--pod-source=none".to_owned(),
        "--sched-trace=off".to_owned(),
    ];
    let cgroup = tree.above().child("agent");
    let agent = Agent::start_in(&cgroup, &flags);
    eventually("seconds on the disk", || times(&ring).len() >= 3);
    assert!(agent.signal(Signal::TERM).0.success());
    let before = times(&ring);
    let (first, last) = (before[0], before[before.len() - 1]);

    let agent = Agent::start_in(&cgroup, &flags);
    eventually("a second of the new agent", || times(&ring).len() > before.len());
    let get = |path: &str| -> Value {
        let (status, body) = agent.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    eventually("the history", || agent.get("/api/v1/frame").0 == 200);
    let begin = get("/api/v1/node")["history"]["beginMs"].as_u64().unwrap();
    assert!(begin <= first, "{begin} > {first}");
    let frame = get(&format!("/api/v1/frame?until={last}"));
    assert_eq!(frame["atMs"], last);
    assert_eq!(frame["containers"][0]["uid"], UID, "{frame}");
    let (status, body) = agent.get(&format!("/api/v1/frame?until={}", first - 3_600_000));
    assert!(status == 404 && body.contains("no data of this time"), "{status} {body}");

    let path = dir.path().join("before.cpuwarden");
    // The end of its second, UTC.
    let second = last.div_ceil(1000) % 86_400;
    let at = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    let saved = Command::new(binary())
        .args(["snapshot", "--last=60s", &format!("--until={at}"), "--output"])
        .arg(&path)
        .arg(format!("--address={}", agent.address()))
        .output()
        .unwrap();
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    assert_eq!(times(&path), before);
    let wrong =
        Command::new(binary()).arg("replay").arg(&path).args(["--once", "--at=-1h"]).output();
    let errors = String::from_utf8(wrong.unwrap().stderr).unwrap();
    assert!(errors.contains("is outside of the recording, which has"), "{errors}");
}

/// Times of the frames recorded so far.
fn times(dir: &Path) -> Vec<u64> {
    Recording::open(dir).map_or_else(|_| Vec::new(), |recording| recording.times().to_vec())
}

/// Waits until the recording has grown five times by at most two seconds: a recorder that collects
/// seconds before it writes never does. Returns the times.
fn seconds_one_by_one(dir: &Path) -> Vec<u64> {
    let (known, small) = (Cell::new(0), Cell::new(0));
    eventually("seconds that come to the disk one by one", || {
        let frames = times(dir).len();
        let before = known.replace(frames);
        if (1..=2).contains(&(frames - before)) {
            small.set(small.get() + 1);
        }
        small.get() >= 5
    });
    times(dir)
}

/// Standard output of a replay, which must succeed.
fn replay(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(binary()).arg("replay").arg(dir).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_killed_recorder_leaves_what_it_wrote_and_the_next_continues() {
    let tree = RealTree::beside_others();
    let container = tree.pod(Qos::Burstable, UID).child(CONTAINER);
    container.set_quota_usec(20_000, 100_000);
    let _load = container.spawn(&Workload::Spin { threads: 1 });
    let dir = tempfile::tempdir().unwrap();
    let cgroup = tree.above().child("recorder");
    let recorder = Recorder::start(&tree, &cgroup, dir.path());
    let before = seconds_one_by_one(dir.path());
    drop(recorder);
    let after = times(dir.path());
    assert!(after.starts_with(&before), "{before:?} became {after:?}");

    // What was recorded is what the kernel did: the quota is 0.2 CPUs.
    let text = replay(dir.path(), &["--output=json"]);
    let frames: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(frames.len(), after.len());
    let last = &frames[frames.len() - 1]["containers"][0];
    assert_eq!((&last["uid"], &last["limitCores"]), (&UID.into(), &0.2.into()), "{last}");
    assert!(last["throttledOwn"].as_f64().unwrap() > 0.1, "{last}");
    let table = replay(dir.path(), &["--once"]);
    assert!(table.contains(&UID[..8]), "{table}");

    // The next recorder continues in the same directory.
    let _recorder = Recorder::start(&tree, &cgroup, dir.path());
    eventually("more seconds on the disk", || times(dir.path()).len() > after.len());
    assert!(times(dir.path()).starts_with(&after));
}

#[test]
fn a_killed_agent_leaves_all_seconds_that_it_completed_except_the_last() {
    let tree = RealTree::beside_others();
    let container = tree.pod(Qos::Burstable, UID).child(CONTAINER);
    container.set_quota_usec(5_000, 100_000);
    let _load = container.spawn(&Workload::Spin { threads: 1 });
    // In memory: a slow disk delays the recorder.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let ring = dir.path().join("ring");
    let flags = [
        &format!("--kubepods={}", tree.kubepods().path().display()),
        &format!("--record={},1MiB", ring.display()),
        "--pod-source=none",
        "--sched-trace=off",
        "--cpu-budget=1000",
    ];
    // Nor does a busy machine.
    let agent = Agent::start_in(&tree.above().child("agent"), &flags);
    seconds_one_by_one(&ring);
    // A second is in the history as soon as it is over, and is recorded from there.
    let (_, history) = agent.get("/api/v1/history?seconds=600&measure=usageCores");
    agent.signal(Signal::KILL);
    let history: Value = serde_json::from_str(&history).unwrap();
    let completed = history["atMs"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap());
    let completed: Vec<u64> = completed.collect();
    let recorded = times(&ring);
    let lost: Vec<&u64> = completed.iter().filter(|at| !recorded.contains(at)).collect();
    assert!(completed.len() >= 5 && lost.len() <= 1, "{lost:?} of {completed:?}");
    assert!(lost.is_empty() || completed.last() == lost.first().copied(), "{lost:?}");
}

#[test]
fn a_snapshot_has_the_last_seconds_of_a_running_agent() {
    let tree = RealTree::beside_others();
    let container = tree.pod(Qos::Burstable, UID).child(CONTAINER);
    container.set_quota_usec(20_000, 100_000);
    let _load = container.spawn(&Workload::Spin { threads: 1 });
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let flags = [&kubepods, "--pod-source=none", "--sched-trace=off"];
    let agent = Agent::start_in(&tree.above().child("agent"), &flags);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("incident");
    let snapshot = |last: &str| {
        let mut command = Command::new(binary());
        command.args(["snapshot", last, &format!("--address={}", agent.address()), "-o"]);
        command.arg(&path).output().unwrap()
    };
    eventually("four seconds of history", || {
        let is_saved = snapshot("--last=10m").status.success();
        is_saved && times(&path).len() >= 4
    });
    let text = replay(&path, &["--output=json"]);
    let frames: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for frame in &frames {
        let row = &frame["containers"][0];
        let limit = row["limitCores"].as_f64().unwrap();
        assert!(row["uid"] == UID && (limit - 0.2).abs() < 1e-3, "{frame}");
        assert_eq!(frame["node"]["trace"]["mode"], "off", "{frame}");
    }
    let throttled = |frame: &Value| frame["containers"][0]["throttledOwn"].as_f64();
    assert!(frames.iter().filter_map(throttled).sum::<f64>() > 0.1, "{text}");

    let saved = snapshot("--last=2s");
    assert!(saved.status.success());
    let line = String::from_utf8(saved.stdout).unwrap();
    assert!(line.contains("bytes; open it with cpuwarden replay"), "{line}");
    let times = times(&path);
    assert!(times[times.len() - 1] - times[0] <= 2000, "{times:?}");
    let rejected = snapshot("--last=25h");
    let errors = String::from_utf8(rejected.stderr).unwrap();
    assert!(rejected.status.code() == Some(64) && errors.contains("1s to 24h"), "{errors}");
}

/// A recording of 700 seconds with one container, whose usage in cores is the second, and two CPUs.
pub(crate) fn seven_hundred_seconds(path: &Path) {
    let frame = |second: u64| {
        let mut row = ContainerFrame {
            namespace: "shop".to_owned(),
            pod: "checkout".to_owned(),
            uid: UID.to_owned(),
            ..ContainerFrame::default()
        };
        row.rates.usage_cores = Some(second as f64);
        let mut frame =
            Frame { at_ms: 1000 * second, seconds: 1.0, containers: vec![row], ..Frame::default() };
        let cpu = |cpu| CpuFrame { cpu, socket: Some(cpu), ..CpuFrame::default() };
        frame.node.name = "node-1".to_owned();
        frame.node.cpus = vec![cpu(0), cpu(1)];
        frame
    };
    let frames: Vec<Frame> = (1..=700).map(frame).collect();
    std::fs::write(path, recording::encode(&frames, &Origin::default()).unwrap()).unwrap();
}

#[test]
fn a_replay_serves_the_page_and_the_api_on_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("incident");
    seven_hundred_seconds(&path);
    let (mut replay, address) = replay_page(&path, &[]);
    let json = |address, path: &str| -> Value {
        let (status, body) = http::get(address, path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    for page in ["/", "/ui/page.js"] {
        assert_eq!(http::get(address, page).unwrap().0, 200, "{page}");
    }
    let pods = json(address, "/api/v1/pods");
    assert_eq!((&pods["atMs"], &pods["pods"][0]["pod"]), (&700_000.into(), &"checkout".into()));
    let history = json(address, "/api/v1/history?seconds=600&measure=usageCores");
    let times: Vec<u64> =
        history["atMs"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect();
    assert_eq!(times, (101..=700).map(|second| 1000 * second).collect::<Vec<u64>>());
    let first = history["containers"][0]["measures"]["usageCores"][0].as_f64().unwrap();
    assert!((first - 101.0).abs() < 0.1, "{first}");
    let topology = json(address, "/api/v1/topology");
    assert_eq!((&topology["online"], &topology["cpus"][1]["socket"]), (&"0-1".into(), &1.into()));
    for absent in ["pins", "doctor"] {
        let (status, body) = http::get(address, &format!("/api/v1/{absent}")).unwrap();
        assert!(status == 503 && body.contains("error"), "{absent}: {status} {body}");
    }
    let again = json(address, "/api/v1/node");
    assert_eq!(again["node"]["name"], "node-1", "{again}");
    assert_eq!(again["recording"], true, "{again}");

    let pid = Pid::from_child(&replay.0);
    kill_process(pid, Signal::TERM).unwrap();
    assert!(replay.0.wait().unwrap().success());

    // From a time in the middle, each second comes when it is due.
    let (_replay, address) = replay_page(&path, &["--at", "1970-01-01T00:01:40Z"]);
    let at = || json(address, "/api/v1/frame")["atMs"].as_u64().unwrap();
    assert!((100_000..650_000).contains(&at()), "{}", at());
    let first = at();
    eventually("a later second", || at() > first);
}

/// A replay that serves its page, and the address.
pub(crate) fn replay_page(path: &Path, args: &[&str]) -> (Recorder, SocketAddr) {
    let mut command = Command::new(binary());
    command.arg("replay").arg(path).arg("--listen=127.0.0.1:0").args(args);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    (Recorder(child), address)
}

#[test]
fn a_recording_that_cannot_be_made_or_shown_is_an_error_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let newer = dir.path().join("newer.cpuwarden");
    let bytes =
        include_bytes!("../../crates/timeline/tests/recording/fixtures/version-99.cpuwarden");
    std::fs::write(&newer, bytes).unwrap();
    let newer = newer.to_str().unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["replay", newer], "format version 99, written by cpuwarden 7.0.0"),
        (&["replay", "/nowhere"], "cannot open /nowhere"),
        (&["replay", "/nowhere", "--listen=127.0.0.1:0"], "cannot open /nowhere"),
        (&["record", "/proc/none", "--pod-source=none"], "cannot create /proc/none"),
        (
            &["record", "/nowhere", "--size=1kB"],
            "--size: 1kB is out of range: expected at least 1MiB",
        ),
        (&["record", "/nowhere,1kB"], "1kB is out of range: expected at least 1MiB"),
        (
            &["record", "/nowhere,2MiB", "--size=1MiB"],
            "--size: 1MiB differs from the size in /nowhere,2MiB; set one of them",
        ),
        (
            &["run", "--record=/nowhere,2MiB", "--record-size=1MiB"],
            "--record-size: 1MiB differs from the size in /nowhere,2MiB; set one of them",
        ),
    ];
    for (args, reason) in cases {
        let output = Command::new(binary()).args(args).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{args:?}: {errors}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
    }
}
