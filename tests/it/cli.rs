//! The command line and the configuration: each error is one line with the source and the remedy.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};

use crate::support::{Agent, binary, eventually};

/// The checkout that the program is built from.
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

fn cpuwarden(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary());
    command.args(args).env_clear().envs(env.iter().copied());
    command.output().unwrap()
}

/// Runs the command, which must fail; returns the exit code and its own line of standard error.
fn refused(args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let output = cpuwarden(args, env);
    let errors = String::from_utf8(output.stderr).unwrap();
    // Log lines start with a time; the last line is the command's own.
    let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("cpuwarden: ")).collect();
    assert_eq!(lines.len(), 1, "{errors}");
    assert!(errors.ends_with(&format!("{}\n", lines[0])), "{errors}");
    (output.status.code().unwrap(), lines[0].to_owned())
}

#[track_caller]
fn assert_refused(args: &[&str], code: i32, words: &[&str]) {
    let (found, line) = refused(args, &[]);
    assert_eq!(found, code, "{line}");
    words.iter().for_each(|word| assert!(line.contains(word), "{word:?} is not in {line:?}"));
}

/// Returns the resolved value of a key.
fn resolved(args: &[&str], env: &[(&str, &str)], key: &str) -> String {
    let mut all = vec!["check-config", "--pod-source=none"];
    all.extend(args);
    let output = cpuwarden(&all, env);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix(&format!("{key}: "))).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no {key} in\n{text}"))
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    fs::write(&file, "maxSeries: 1\nsampleInterval: 2s\ncpuBudget: 0.5\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let env = [("CPUWARDEN_MAX_SERIES", "2"), ("CPUWARDEN_SAMPLE_INTERVAL", "3s")];
    let flags = ["--config", file.to_str().unwrap(), "--max-series=3"];
    assert_eq!(resolved(&flags, &env, "maxSeries"), "3");
    assert_eq!(resolved(&config, &env, "maxSeries"), "2");
    assert_eq!(resolved(&config, &env, "sampleInterval"), "3s");
    assert_eq!(resolved(&config, &[], "sampleInterval"), "2s");
    assert_eq!(resolved(&config, &env, "cpuBudget"), "0.5");
    assert_eq!(resolved(&[], &[], "maxSeries"), "50000");
    assert_eq!(resolved(&[], &[], "metrics"), "standard");
}

#[test]
fn an_unknown_key_is_named_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    fs::write(&file, "listen: 127.0.0.1:0\nsampleIntervall: 1s\n").unwrap();
    let file = file.to_str().unwrap();
    assert_refused(
        &["run", "--config", file],
        64,
        &[&format!("{file}:2: "), "sampleIntervall", "sampleInterval"],
    );
}

#[test]
fn a_missing_configuration_file_is_named() {
    assert_refused(&["run", "--config=/nowhere/c.yaml"], 64, &["--config", "/nowhere/c.yaml"]);
}

#[test]
fn a_wrong_flag_or_value_is_named() {
    assert_refused(&["run", "--listenn=x"], 64, &["--listenn", "--listen"]);
    assert_refused(&["run", "--sample-interval=1"], 64, &["--sample-interval", "250ms"]);
    assert_refused(&["run", "--sample-interval=10ms"], 64, &["--sample-interval", "100ms"]);
    assert_refused(&["run", "--pod-source=etcd"], 64, &["--pod-source", "kubelet"]);
    let (code, line) = refused(&["run"], &[("CPUWARDEN_LISTEN", "here")]);
    assert_eq!(code, 64, "{line}");
    assert!(
        line.contains("CPUWARDEN_LISTEN") && line.contains("here") && !line.contains("--listen"),
        "{line}"
    );
}

#[test]
fn an_unreadable_ca_is_named() {
    let args = ["run", "--pod-source=kubelet", "--kubelet-ca-file=/nowhere/ca.crt"];
    assert_refused(&args, 64, &["--kubelet-ca-file", "/nowhere/ca.crt"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = format!("--listen={address}");
    assert_refused(&["run", "--pod-source=none", &listen], 69, &["--listen", &address]);
}

#[test]
fn a_missing_hierarchy_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let args = ["run", "--pod-source=none", "--listen=127.0.0.1:0", "--cgroup-root", root];
    assert_refused(&args, 72, &[root, "--cgroup-root"]);
}

#[test]
fn a_top_cgroup_that_is_not_there_is_named_and_waited_for() {
    let agent =
        Agent::start(&["--pod-source=none", "--sched-trace=off", "--kubepods=no-such/kubepods"]);
    eventually("the log names it", || agent.log().contains("no cgroup no-such/kubepods below"));
    assert_eq!(agent.get("/healthz").0, 200);
}

#[test]
fn help_groups_flags_and_lists_exit_codes() {
    let output = cpuwarden(&["run", "--help"], &[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for heading in ["Server:", "Node:", "Sampling:", "Waits:", "Pods:", "Logging:"] {
        assert!(text.contains(&format!("\n{heading}\n")), "no {heading} in\n{text}");
    }
    assert!(text.contains("CPUWARDEN_SAMPLE_INTERVAL"), "{text}");
    let top = String::from_utf8(cpuwarden(&["--help"], &[]).stdout).unwrap();
    assert!(top.contains("64") && top.contains("72"), "{top}");
}

#[test]
fn certificates_are_copied_and_keys_rejected() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let absent = cpuwarden(&["copy-certificate", &path("kubelet.crt"), &path("copy")], &[]);
    assert!(
        absent.status.success() && !place.path().join("copy").exists(),
        "the agent starts all the same"
    );
    fs::write(path("kubelet.crt"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    assert_refused(
        &["copy-certificate", &path("kubelet.crt"), &path("copy")],
        64,
        &["kubelet.crt", "private key"],
    );
}

#[test]
fn a_reader_that_has_left_is_no_error() {
    for args in
        [&["topology"][..], &["check-config", "--pod-source=none"], &["reference", "metrics"]]
    {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let child = Command::new(binary())
            .args(args)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn completions_and_man_pages_come_from_the_command_line() {
    for shell in ["bash", "zsh", "fish"] {
        let output = cpuwarden(&["completions", shell], &[]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("sched-trace"), "{shell}: {script}");
    }
    let page = String::from_utf8(cpuwarden(&["man"], &[]).stdout).unwrap();
    assert!(page.contains(".TH cpuwarden") && page.contains("doctor"), "{page}");
    let run = String::from_utf8(cpuwarden(&["man", "run"], &[]).stdout).unwrap();
    assert!(run.contains(r"\-\-sample\-interval"), "{run}");
    assert_refused(&["man", "nothing"], 64, &["nothing", "--help"]);
}

#[test]
fn the_version_names_revision_and_build() {
    let text = String::from_utf8(cpuwarden(&["--version"], &[]).stdout).unwrap();
    assert!(text.starts_with("cpuwarden 0.") && text.contains(" build for "), "{text}");
    let revision = text.split_once("(revision ").unwrap().1.split_once(',').unwrap().0;
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(SOURCE).output();
    // A build of a release names the revision, and an unpacked source has none.
    match (option_env!("CPUWARDEN_REVISION"), git) {
        (None, Ok(git)) if git.status.success() => {
            let head = String::from_utf8(git.stdout).unwrap();
            assert!(revision.len() >= 12 && head.starts_with(revision), "{text} at {head}");
        }
        (given, _) => assert_eq!(revision, given.unwrap_or("unknown")),
    }
}

#[test]
fn top_hears_signals_while_an_agent_answers_slowly() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, asks) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        asked.send(()).unwrap();
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    let mut top = Command::new(binary())
        .args(["top", "--once", &format!("--address={address}")])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    asks.recv().unwrap();
    let pid = rustix::process::Pid::from_child(&top);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = top.wait().unwrap();
    // Without a signal it would give up because the agent is too slow.
    let mut error = String::new();
    top.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(status.code() == Some(69) && error.contains("interrupted"), "{status}: {error}");
}
