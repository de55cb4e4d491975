//! The view on a real terminal, tmux: drawing, leaving, and a panic.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::Command;
use std::time::{Duration, Instant};

use api::Frame;
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
        let tmux = Self { directory: tempfile::tempdir().unwrap() };
        let shell = ["new-session", "-d", "-x", "80", "-y", "24", "env", "PS1=ready> ", "sh"];
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
        vec![Update::Frame(Box::new(Frame { at_ms, seconds: 1.0, ..Frame::default() }))]
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
