//! The view on a real terminal, tmux: drawing, leaving, and a panic.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::HashSet;
use std::process::Command;
use std::time::{Duration, Instant};

use api::{ContainerFrame, Frame, NodeFrame, Rates, Trace};
use tempfile::TempDir;
use top::{App, Look, Source, Update};

/// Number of updates after which the source panics.
const VARIABLE: &str = "CPUWARDEN_TOP_PANIC_AFTER";

/// A terminal with a shell, closed on drop.
struct Tmux {
    directory: TempDir,
}

impl Tmux {
    fn start() -> Self {
        Self::start_with(80, 24)
    }

    fn start_with(width: u32, height: u32) -> Self {
        let tmux = Self { directory: tempfile::tempdir().unwrap() };
        let (x, y) = (width.to_string(), height.to_string());
        let shell = ["new-session", "-d", "-x", &x, "-y", &y, "env", "PS1=ready> ", "sh"];
        tmux.run(&shell);
        tmux.wait_for("ready>");
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        let socket = self.directory.path().join("tmux");
        let output = Command::new("tmux")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(socket)
            .args(args)
            .env_remove("TMUX")
            .output()
            .unwrap_or_else(|error| panic!("tmux (Debian package tmux): {error}"));
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-J"])
    }

    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < deadline, "no {text:?} on\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs this test binary as the view in the terminal.
    fn open(&self, panic_after: u32) {
        self.open_with("", panic_after);
    }

    /// The same with further variables in the environment.
    fn open_with(&self, variables: &str, panic_after: u32) {
        let program = std::env::current_exe().unwrap();
        let command = format!(
            "{variables} {VARIABLE}={panic_after} {} view_process --exact --ignored --nocapture",
            program.display()
        );
        self.run(&["send-keys", &command, "Enter"]);
    }

    /// Checks that the shell has its screen, cursor and line editing back.
    fn assert_restored(&self) {
        let state = self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(state.trim(), "0 1", "alternate screen or cursor");
        self.run(&["send-keys", "clear; stty -a; echo done-$((1+1))", "Enter"]);
        let screen = self.wait_for("done-2");
        let has = |flag: &str| screen.split([' ', '\n', ';']).any(|word| word == flag);
        assert!(has("icanon") && has("echo") && has("opost"), "{screen}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let socket = self.directory.path().join("tmux");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

/// Sends frames, and panics after some calls.
struct Panicking {
    calls: u32,
    panic_after: u32,
}

impl Source for Panicking {
    fn updates(&mut self) -> Vec<Update> {
        self.calls += 1;
        assert!(self.calls < self.panic_after, "panic on purpose");
        let at_ms = 1_700_000_000_000 + u64::from(self.calls) * 1000;
        let containers = (0..250).map(pod).collect();
        let node = NodeFrame {
            trace: Trace { mode: "continuous".into(), reason: String::new() },
            ..NodeFrame::default()
        };
        let frame = Frame { at_ms, seconds: 1.0, node, containers, ..Frame::default() };
        vec![Update::Frame(Box::new(frame))]
    }
}

/// A pod with a name of the usual length in a company.
fn pod(at: usize) -> ContainerFrame {
    let chars = b"bcdfghjklmnpqrstvwxz2456789";
    let char = |place| char::from(chars[(at * 7919 + 1) / 27_usize.pow(place) % 27]);
    let suffix: String = (0..5).map(|place| char(place % 3)).collect();
    let kind = ["canary", "stable", "shadow"][at % 3];
    ContainerFrame {
        namespace: format!("team-{}-payments-production", at / 50),
        pod: format!("customer-facing-checkout-{kind}-7d9f8b6c5d-{suffix}"),
        container: "app".into(),
        rates: Rates { usage_cores: Some(0.1), ..Rates::default() },
        ..ContainerFrame::default()
    }
}

#[test]
#[ignore = "not a test: the process in the terminal, started by Tmux::open"]
fn view_process() {
    let panic_after = std::env::var(VARIABLE).unwrap().parse().unwrap();
    let mut app = App::new(Look::from_env());
    top::run(&mut app, &mut Panicking { calls: 0, panic_after }, || false).unwrap();
    println!("left by a key");
}

/// The codes on the screen that set a color; those of bold, dim and reversed are not among them.
fn colors(screen: &str) -> Vec<u32> {
    let codes = screen.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
    let codes = codes.flat_map(|(codes, _)| codes.split([';', ':']));
    let codes = codes.filter_map(|code| code.parse().ok());
    codes.filter(|code| matches!(code, 30..=38 | 40..=48 | 90..=107)).collect()
}

#[test]
fn no_color_turns_colors_off_on_the_terminal() {
    for (variables, is_colored) in [("NO_COLOR=", true), ("NO_COLOR=1", false)] {
        let tmux = Tmux::start();
        tmux.open_with(variables, u32::MAX);
        tmux.wait_for("q quit");
        let screen = tmux.run(&["capture-pane", "-p", "-e"]);
        assert!(screen.contains("\x1b["), "no style at all: {screen:?}");
        assert_eq!(!colors(&screen).is_empty(), is_colored, "{variables}: {screen:?}");
        tmux.run(&["send-keys", "q"]);
        tmux.wait_for("left by a key");
    }
}

#[test]
fn q_leaves_and_restores_the_terminal() {
    let tmux = Tmux::start();
    tmux.open(u32::MAX);
    tmux.wait_for("q quit");
    assert_eq!(tmux.run(&["display-message", "-p", "#{alternate_on}"]).trim(), "1");
    tmux.run(&["send-keys", "q"]);
    tmux.wait_for("left by a key");
    tmux.assert_restored();
}

#[test]
fn a_panic_restores_the_terminal_and_shows_its_message() {
    let tmux = Tmux::start();
    // A short message: all of the screen's lines are from this run.
    tmux.open_with("RUST_BACKTRACE=0", 10);
    let screen = tmux.wait_for("test result: FAILED");
    assert!(!screen.contains("q quit"), "the message is on the view's screen:\n{screen}");
    let message = screen.find("panic on purpose");
    assert!(message.is_some_and(|at| at < screen.find("FAILED").unwrap()), "{screen}");
    tmux.assert_restored();
}

#[test]
fn ctrl_z_stops_the_view_until_it_is_continued() {
    let tmux = Tmux::start();
    tmux.open(u32::MAX);
    tmux.wait_for("q quit");
    tmux.run(&["send-keys", "C-z"]);
    // The shell's own screen, with what was typed before.
    tmux.wait_for("--nocapture");
    tmux.assert_restored();
    tmux.run(&["send-keys", "clear; fg", "Enter"]);
    tmux.wait_for("q quit");
    assert_eq!(tmux.run(&["display-message", "-p", "#{alternate_on}"]).trim(), "1");
    // Keys are read one by one again.
    tmux.run(&["send-keys", "?"]);
    tmux.wait_for("this help");
    tmux.run(&["send-keys", "q"]);
    tmux.wait_for("left by a key");
    tmux.assert_restored();
}

#[test]
fn many_pods_with_long_names_are_told_apart_and_filtered_on_a_terminal() {
    for width in [80, 120, 200] {
        let tmux = Tmux::start_with(width, 60);
        tmux.open(u32::MAX);
        // The last text of a screen: all above it is drawn.
        let screen = tmux.wait_for("q quit");
        let rows = |screen: &str| -> Vec<String> {
            let rows = screen.lines().skip_while(|line| !line.contains("LAST MINUTE")).skip(1);
            let names = rows.filter(|row| row.contains("-checkout-") || row.contains("…"));
            let name = |row: &str| {
                row.chars().skip(3).collect::<String>().split("  ").next().unwrap().to_owned()
            };
            names.map(name).collect()
        };
        let names = rows(&screen);
        assert!(names.len() > 40, "{screen}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{screen}");
        for kind in ["canary", "stable", "shadow"] {
            assert!(names.iter().any(|name| name.contains(kind)), "{kind} is cut:\n{screen}");
        }
        tmux.run(&["send-keys", "/"]);
        tmux.run(&["send-keys", "team-4 !stable !shadow"]);
        tmux.run(&["send-keys", "C-w"]);
        let screen = tmux.wait_for("filter: team-4 !stable _");
        let has = |kind: &str| rows(&screen).iter().any(|name| name.contains(kind));
        assert!(has("canary") && has("shadow") && !has("stable"), "{screen}");
        tmux.run(&["send-keys", "C-u"]);
        tmux.wait_for("filter: _");
    }
}
