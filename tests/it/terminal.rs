//! The terminal view of the real binary on a real terminal, tmux, under the demo's load.

mod narrow;
pub(crate) mod picture;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::demo::{NOBODY, public_program};
use crate::recording::seven_hundred_seconds;
use crate::support::http;
use crate::support::{
    Agent, OnStage, Qos, RealTree, Running, Workload, binary, eventually, poll, turn,
};

/// A terminal with a shell, closed on drop.
pub(crate) struct Tmux {
    directory: TempDir,
}

impl Tmux {
    pub(crate) fn start(width: usize, height: usize) -> Self {
        let tmux = Self { directory: tempfile::tempdir().unwrap() };
        let (x, y) = (width.to_string(), height.to_string());
        tmux.run(&["new-session", "-d", "-x", &x, "-y", &y, "env", "PS1=ready> ", "sh"]);
        tmux.wait_for("ready>");
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(self.directory.path().join("tmux"))
            .args(args)
            .env_remove("TMUX")
            .output()
            .unwrap_or_else(|error| panic!("tmux (Debian package tmux): {error}"));
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys", "--"], keys].concat());
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Checks that the view fills the terminal, from the node to the keys, and that the first line
    /// ends with a whole fact, or with a mark where it is cut.
    fn assert_is_whole(&self) {
        let screen = self.screen();
        let lines: Vec<&str> = screen.lines().collect();
        let (first, last) = (lines[0], lines[lines.len() - 1]);
        let is_whole = ["UTC", "s", "%", "x1", "…"].iter().any(|end| first.ends_with(end));
        assert!(first.contains(" UTC") && is_whole, "the first line is cut:\n{screen}");
        assert!(last.contains("q quit"), "the keys are not in the last line:\n{screen}");
    }

    /// Waits for a screen with this text, and returns it.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(&format!("{text:?} on the terminal"), |screen| screen.contains(text))
    }

    /// Waits until the first row of the table starts so, and returns the screen.
    fn wait_for_first_row(&self, start: &str) -> String {
        let screen = self.wait_until(start, |screen| {
            let mut lines = screen.lines().skip_while(|line| !line.contains("LAST MINUTE"));
            lines.nth(1).is_some_and(|line| line.starts_with(start))
        });
        self.assert_is_whole();
        screen
    }

    /// Filters the table by this text, waits until its first row starts so, and returns the screen.
    fn filter(&self, text: &str, start: &str) -> String {
        self.keys(&["/", text, "Enter"]);
        self.wait_for(&format!("filter: {text}"));
        self.wait_for_first_row(start)
    }

    /// Waits for a screen for which the condition holds, and returns it: the next one may differ.
    fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let expected = || format!("{what}, on\n{}", self.screen());
        poll(Duration::from_millis(20), Duration::from_secs(60), expected, || {
            screen = self.screen();
            condition(&screen)
        });
        screen
    }

    /// Starts the demo on real cgroups; returns its process when it shows its view. It ends on its
    /// own, should this test be killed.
    fn demo(&self) -> Pid {
        let demo = self.start_job("demo --duration 3m --listen 127.0.0.1:0");
        self.wait_for("q quit");
        assert!(!cgroups_of(demo).is_empty(), "no cgroups, so nothing is measured");
        demo
    }

    /// Resizes the terminal, and waits until the view fills it: the program may miss a key that
    /// comes at the same time as the signal.
    fn resize(&self, width: usize, height: usize) {
        self.run(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
        self.wait_until("a view of this size", |screen| {
            screen.lines().nth(height - 1).is_some_and(|line| line.contains("q quit"))
        });
    }

    /// Runs the program in the foreground of the shell; returns its process.
    fn start_job(&self, arguments: &str) -> Pid {
        let pid = self.directory.path().join("pid");
        // Of an earlier job.
        let _ = std::fs::remove_file(&pid);
        let program = binary();
        let command =
            format!("{} {arguments} & echo $! > {}; fg", program.display(), pid.display());
        self.keys(&["set -m", "Enter"]);
        self.keys(&[&command, "Enter"]);
        let read = || std::fs::read_to_string(&pid).ok()?.trim().parse().ok();
        eventually("the process of the job", || read().is_some());
        Pid::from_raw(read().unwrap()).unwrap()
    }

    /// Checks that the shell has its screen, cursor and line editing back.
    fn assert_restored(&self) {
        let is_back = || {
            let state = self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
            state.trim() == "0 1"
        };
        eventually("the shell's screen and cursor", is_back);
        self.keys(&["clear; stty -a; echo done-$((1+1))", "Enter"]);
        let screen = self.wait_for("done-2");
        let has = |flag: &str| screen.split([' ', '\n', ';']).any(|word| word == flag);
        assert!(has("icanon") && has("echo"), "{screen}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let socket = self.directory.path().join("tmux");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

/// Root cgroups of this demo.
fn cgroups_of(demo: Pid) -> Vec<PathBuf> {
    let name = format!("cpuwarden-demo-{}", demo.as_raw_nonzero());
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"].map(|mount| Path::new(mount).join(&name));
    mounts.into_iter().filter(|cgroup| cgroup.exists()).collect()
}

#[test]
fn the_demo_shows_causes_and_neighbors_on_two_sizes_of_terminal() {
    let (_turn, _stage) = (turn(), OnStage::enter());
    let tmux = Tmux::start(80, 24);
    let demo = tmux.demo();
    assert_the_spinner_is_throttled_by_its_limit(&tmux);
    // Alone: with a key right behind it, a terminal sends Alt and that key.
    tmux.keys(&["Escape"]);
    tmux.wait_until("no filter", |screen| !screen.contains("filter:"));
    narrow::assert_every_view_has_its_content(&tmux);
    tmux.resize(200, 50);
    assert_the_spinner_is_throttled_by_its_limit(&tmux);
    tmux.keys(&["Escape"]);
    tmux.wait_until("no filter", |screen| !screen.contains("filter:"));
    assert_the_neighbor_is_named(&tmux);
    tmux.keys(&["q"]);
    tmux.assert_restored();
    eventually("the demo's cgroups are removed", || cgroups_of(demo).is_empty());
}

/// Checks the view of pods and that of the spinner; returns to the view of pods.
fn assert_the_spinner_is_throttled_by_its_limit(tmux: &Tmux) {
    // On a busy machine the waits of others may be longer.
    let screen = tmux.filter("checkout", ">L shop/checkout");
    assert!(screen.contains("Ctrl-C or q ends the demo"), "{screen}");
    assert!(screen.contains("cpuwarden advise --address 127.0.0.1:"), "{screen}");
    tmux.keys(&["Enter"]);
    tmux.wait_for("used, limit 0.20");
    // The first second may be a part of one.
    tmux.wait_until("half of the time throttled by its own limit", |screen| {
        let own = screen.lines().find(|line| line.starts_with("throttled, own"));
        let share = own.and_then(|own| own.split_whitespace().last()?.strip_suffix('%'));
        share.is_some_and(|share| share.parse::<u32>().unwrap() > 50)
    });
    tmux.assert_is_whole();
    tmux.keys(&["Escape"]);
    tmux.wait_for_first_row(">L shop/checkout");
}

/// Checks the victim, its neighbor, and the keys that open other views.
fn assert_the_neighbor_is_named(tmux: &Tmux) {
    let screen = tmux.filter("encode", ">N batch/encode");
    let is_said =
        ["batch/encode: waited", "batch/encode: slowed"].iter().any(|it| screen.contains(it));
    assert!(is_said, "{screen}");
    tmux.keys(&["Escape"]);
    tmux.wait_until("no filter", |screen| !screen.contains("filter:"));
    // On a busy machine the host may make others wait longer.
    tmux.keys(&["a"]);
    tmux.wait_for("MAKES WAIT");
    let screen = tmux.filter("search", ">  search/index");
    assert!(screen.contains("search/index: ") && screen.contains("batch/encode"), "{screen}");
}

#[test]
fn the_demo_cleans_up_at_a_signal_and_when_its_terminal_is_closed() {
    let (_turn, _stage) = (turn(), OnStage::enter());
    let tmux = Tmux::start(80, 24);
    let demo = tmux.demo();
    kill_process(demo, Signal::TERM).unwrap();
    tmux.assert_restored();
    eventually("the demo's cgroups are removed", || cgroups_of(demo).is_empty());
    tmux.keys(&["clear", "Enter"]);
    let demo = tmux.demo();
    tmux.run(&["kill-server"]);
    eventually("the demo's cgroups are removed", || cgroups_of(demo).is_empty());
}

#[test]
fn without_root_the_demo_plays_its_recording_with_its_page() {
    let (_place, program) = public_program();
    let program = program.display();
    for (width, height) in [(80, 24), (200, 50)] {
        let tmux = Tmux::start(width, height);
        let user = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
        tmux.keys(&[&format!("{user} {program} demo --listen 127.0.0.1:0"), "Enter"]);
        tmux.wait_for("q quit");
        let screen = tmux.wait_for("a recording of 2");
        // Wrapped at 80 columns.
        let text = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("not this machine (not root)"), "{screen}");
        assert!(text.contains("Space pauses, left and right move in time"), "{screen}");
        let url = text.split("http://").nth(1).unwrap().split('/').next().unwrap();
        let (status, body) = http::get(url.parse().unwrap(), "/api/v1/pods").unwrap();
        assert!(status == 200 && body.contains("checkout"), "{status} {body}");
        tmux.keys(&["Space"]);
        tmux.wait_for("PAUSED");
        tmux.keys(&["$"]);
        tmux.wait_for("100%");
        let screen = tmux.filter("encode", ">N batch/encode");
        let headline = screen.lines().find(|line| line.contains("batch/encode: slowed "));
        assert!(headline.is_some_and(|line| line.contains(" by search/index")), "{screen}");
        tmux.keys(&["q"]);
        tmux.assert_restored();
    }
}

#[test]
fn a_replay_is_moved_by_keys_and_restores_the_terminal_at_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("incident");
    seven_hundred_seconds(&path);
    for (size, signal) in [((80, 24), Signal::TERM), ((200, 50), Signal::HUP)] {
        let tmux = Tmux::start(size.0, size.1);
        let replay = tmux.start_job(&format!("replay {} --at 00:05", path.display()));
        tmux.wait_for_first_row(">  shop/checkout");
        tmux.keys(&["Space"]);
        tmux.wait_for("PAUSED");
        // In this recording the use in cores is the second.
        let assert_at = |key: &[&str], clock: &str, used: &str| {
            tmux.keys(key);
            let screen = tmux.wait_for(clock);
            assert!(screen.contains(used), "{used} is not on\n{screen}");
        };
        assert_at(&["0"], "00:00:01 UTC", " 1.00 ");
        assert_at(&["]"], "00:01:01 UTC", " 61.0 ");
        assert_at(&["Right", "Right", "Left"], "00:01:02 UTC", " 62.0 ");
        assert_at(&["$"], "00:11:40 UTC", " 700");
        tmux.assert_is_whole();
        kill_process(replay, signal).unwrap();
        tmux.assert_restored();
    }
}

#[test]
fn a_replay_with_an_address_opens_the_view_and_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("incident");
    seven_hundred_seconds(&path);
    let tmux = Tmux::start(80, 24);
    let arguments = format!("replay {} --at 00:05 --listen 127.0.0.1:0", path.display());
    let replay = tmux.start_job(&arguments);
    let screen = tmux.wait_for_first_row(">  shop/checkout");
    let address = screen.split("page: http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{screen}")).parse().unwrap();
    assert_eq!(http::get(address, "/").unwrap().0, 200);
    let frame: serde_json::Value =
        serde_json::from_str(&http::get(address, "/api/v1/frame").unwrap().1).unwrap();
    assert!((300_000..700_000).contains(&frame["atMs"].as_u64().unwrap()), "{frame}");
    kill_process(replay, Signal::TERM).unwrap();
    tmux.assert_restored();
    assert!(http::get(address, "/").is_err());
}

/// A container that is always throttled, and an agent that samples it. Both have the highest
/// weight.
fn throttled_node(tree: &RealTree) -> (Running, Agent) {
    let uid = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0020";
    let container = tree.pod(Qos::Burstable, uid).child(&"d".repeat(64));
    container.set_quota_usec(20_000, 100_000);
    let running = container.spawn(&Workload::Spin { threads: 1 });
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let options = ["--pod-source=none", "--sched-trace=off", &kubepods];
    let agent = Agent::start_in(&tree.above().child("agent"), &options);
    (running, agent)
}

fn top_once(agent: &Agent) -> Output {
    let address = agent.address().to_string();
    Command::new(binary()).args(["top", "--once", "--address", &address]).output().unwrap()
}

#[test]
fn top_shows_a_running_agent_with_its_history_and_reports_its_end() {
    let tree = RealTree::beside_others();
    let (_running, agent) = throttled_node(&tree);
    eventually("six seconds of history", || {
        let (_, history) = agent.get("/api/v1/history?seconds=60&measure=usageCores");
        let history: serde_json::Value = serde_json::from_str(&history).unwrap();
        history["atMs"].as_array().is_some_and(|times| times.len() >= 6)
    });
    let output = top_once(&agent);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row = text.lines().find(|line| line.contains("0.20") && line.contains('%')).unwrap();
    assert!(row.starts_with(" L "), "{text}");
    let last_minute = row.split_whitespace().last().unwrap();
    assert!(last_minute.chars().count() >= 5 && !last_minute.contains('-'), "{text}");

    let tmux = Tmux::start(200, 50);
    let command = format!("{} top --address {}", binary().display(), agent.address());
    tmux.keys(&[&command, "Enter"]);
    tmux.wait_for_first_row(">L ");
    tmux.keys(&["Enter"]);
    tmux.wait_for("used, limit 0.20");
    tmux.assert_is_whole();
    // Back in time, to a typed time, and to now.
    tmux.keys(&["Escape"]);
    tmux.keys(&["Left", "Left"]);
    tmux.wait_for(" ago, Space: now");
    tmux.keys(&["@"]);
    tmux.wait_for("time (UTC): _");
    tmux.keys(&["-3s", "Enter"]);
    tmux.wait_for(" 3s ago, Space: now");
    tmux.keys(&["Space"]);
    tmux.wait_until("now", |screen| screen.contains(">L ") && !screen.contains(" ago, "));
    drop(agent);
    tmux.wait_for("trying again");
    tmux.keys(&["q"]);
    tmux.assert_restored();
}

#[test]
fn an_agent_without_the_api_is_reported_with_the_remedy() {
    let agent = Agent::start(&["--pod-source=none", "--sched-trace=off", "--ui=off"]);
    let output = top_once(&agent);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{errors}");
    let documented = "404 Not Found: not an agent of this version, or one with --ui=off";
    assert!(errors.contains(&format!("/api/v1/frame: {documented}")), "{errors}");
    assert!(include_str!("../../deploy/docs/views.md").contains(documented));
}

#[test]
fn without_an_agent_top_measures_this_machine_and_prints_a_plain_table_to_a_pipe() {
    let tree = RealTree::beside_others();
    let uid = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0019";
    let id = "c".repeat(64);
    let container = tree.pod(Qos::Burstable, uid).child(&id);
    container.set_quota_usec(20_000, 100_000);
    let _running = container.spawn(&Workload::Spin { threads: 1 });
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let output = Command::new(binary())
        .args(["top", "--once", "--pod-source=none", &kubepods])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row = text.lines().find(|line| line.contains("0.20") && line.contains('%')).unwrap();
    assert!(row.starts_with(" L "), "{text}");
    assert!(
        !text.contains('\x1b') && text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn an_address_without_an_agent_is_reported_with_the_remedy() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let output = Command::new(binary()).args(["top", "--address", &address]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{errors}");
    assert!(errors.contains(&format!("no agent answers at {address}")), "{errors}");
}
