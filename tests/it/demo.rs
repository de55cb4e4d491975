//! `cpuwarden demo` without root, as JSON, and with its port in use. On real cgroups:
//! `kernel::demo`; on a terminal: `terminal`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{OnStage, binary, turn, write_program};

/// UID of `nobody`, on every distribution.
pub(crate) const NOBODY: u32 = 65534;

/// A copy of the program that any user may run.
pub(crate) fn public_program() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("cpuwarden");
    write_program(&program, fs::File::open(binary()).unwrap());
    (place, program)
}

/// Output of the demo as a user without rights.
fn unprivileged(program: &Path, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.arg("demo").args(args);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    page(&command.output().unwrap())
}

#[test]
fn without_root_the_demo_plays_a_recording_of_itself() {
    let (_place, program) = public_program();
    let page = unprivileged(&program, &["--once", "20"]);
    assert!(page.starts_with("cpuwarden demo: a recording of 2"), "{page}");
    assert!(page.contains("not this machine (not root)"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    assert!(page.contains("waits are traced") && !page.contains('\x1b'), "{page:?}");
    // The first table says who is slowed by whom.
    let first = page.lines().skip_while(|line| !line.starts_with("POD ")).skip(1);
    let mut first = first.take_while(|line| !line.is_empty());
    let encode = first.find(|line| line.starts_with("batch/encode "));
    assert!(
        encode.is_some_and(|line| line.contains(" search/index ") && line.contains(" ×4.0 ")),
        "{page}"
    );
    for (word, text) in console::LEGEND {
        assert!(page.contains(&format!("{word}: {text}")), "{page}");
    }
    let row = |pod: &str| {
        let mut rows = page.lines().skip_while(|line| !line.contains("LAST MINUTE"));
        rows.find(|line| line.contains(pod)).unwrap_or_else(|| panic!("{page}"))
    };
    assert!(row("shop/checkout").starts_with(" L "), "{page}");
    let waits = row("batch/encode");
    assert!(waits.starts_with(" N ") && waits.contains("search/index"), "{page}");

    let text = unprivileged(&program, &["--once", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["stage"].as_str().unwrap().contains("a recording"), "{json}");
    let rows = json["rows"].as_array().unwrap();
    let checkout = rows.iter().find(|row| row["pod"] == "checkout").unwrap();
    assert!((0.19..0.21).contains(&checkout["limitCores"].as_f64().unwrap()), "{checkout}");
    assert!(checkout["throttledShare"].as_f64() > Some(0.5), "{checkout}");
    assert!((8.0..=10.5).contains(&checkout["seconds"].as_f64().unwrap()), "{checkout}");
}

#[test]
fn a_demo_with_its_port_in_use_selects_another_one() {
    let (_turn, _stage) = (turn(), OnStage::enter());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(binary())
        .args(["demo", "--duration", "3", "--listen", &address])
        .output()
        .unwrap();
    let page = page(&output);
    let line = page.lines().find(|line| line.starts_with("page: http://")).unwrap();
    assert!(line.ends_with(&format!("({address} is in use)")), "{page}");
    assert!(!line.contains(&format!("http://{address}/")) && line.contains("/metrics"), "{page}");
}

#[test]
fn the_table_as_json_has_the_same_rows() {
    let (_turn, _stage) = (turn(), OnStage::enter());
    let output =
        Command::new(binary()).args(["demo", "--once", "4", "-o", "json"]).output().unwrap();
    let page: serde_json::Value = serde_json::from_str(&page(&output)).unwrap();
    let rows = page["rows"].as_array().unwrap();
    assert!(rows.len() > 3, "{page}");
    // How much it runs and is throttled in these seconds is up to the load of this machine.
    let spinner = rows.iter().find(|row| row["container"] == "spinner").expect("a row");
    assert_eq!((&spinner["namespace"], &spinner["limitCores"]), (&"shop".into(), &0.2.into()));
    let share = spinner["throttledShare"].as_f64().expect("a known share");
    assert!((0.0..=1.0).contains(&share) && spinner["usageCores"].as_f64() > Some(0.0), "{page}");
    assert!(page["stage"].as_str().unwrap().starts_with("cpuwarden demo: "), "{page}");
    assert!(page["slowed"].is_array() && page.get("missing").is_some(), "{page}");
}

#[test]
fn a_time_too_short_for_a_table_is_rejected_in_both_forms() {
    let cases = [("--once", "2"), ("--once", "2s"), ("--once", "soon"), ("--duration", "0")];
    for (flag, time) in cases {
        let output = Command::new(binary()).args(["demo", flag, time]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{time}: {errors}");
        assert!(errors.contains(flag), "{errors}");
    }
}

#[test]
fn one_table_and_a_duration_exclude_each_other() {
    let output =
        Command::new(binary()).args(["demo", "--once", "5", "--duration", "9s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", String::from_utf8_lossy(&output.stderr));
}

fn page(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
