//! `cpuwarden demo` without root, as JSON, and with its port in use. On real cgroups:
//! `kernel::demo`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use crate::support::{binary, turn, write_program};

/// UID of `nobody`, on every distribution.
const NOBODY: u32 = 65534;

#[test]
fn without_root_the_demo_replays_a_recorded_node() {
    // A directory from which any user may run the program.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("cpuwarden");
    write_program(&program, fs::File::open(binary()).unwrap());
    let mut command = Command::new(&program);
    // The names come within a second or two, later on a busy machine.
    command.args(["demo", "--once", "8", "--listen", "127.0.0.1:0"]);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let page = page(&command.output().unwrap());
    let head = page.lines().take(2).collect::<Vec<_>>().join(" ");
    assert!(head.contains("replay of a recorded node, Linux 6.1.0-56-cloud-amd64"), "{page}");
    assert!(head.contains("(no real cgroups: not root)"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    // Pods of the recording, see tests/fixtures/README.md.
    for (pod, container) in
        [("default/throttled-rig-guest", "hot"), ("default/guaranteed-rig-guest", "a")]
    {
        let row = page.lines().find(|line| line.starts_with(pod) && !line.contains("(pod)"));
        assert_eq!(
            row.unwrap_or_else(|| panic!("{page}")).split_whitespace().nth(1),
            Some(container),
            "{page}"
        );
    }
    let hot: Vec<&str> =
        page.lines().find(|line| line.contains(" hot ")).unwrap().split_whitespace().collect();
    assert_eq!((hot[3], hot.last()), ("0.20", Some(&"both")), "the counters did not move: {page}");
    assert!(!page.contains('\x1b'), "escape codes: {page:?}");
}

#[test]
fn a_demo_with_its_port_in_use_selects_another_one() {
    let _turn = turn();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(binary())
        .args(["demo", "--once", "3", "--listen", &address])
        .output()
        .unwrap();
    let page = page(&output);
    let line = page.lines().find(|line| line.starts_with("metrics: ")).unwrap();
    assert!(line.ends_with(&format!("({address} is in use)")), "{page}");
    assert!(!line.contains(&format!("http://{address}/")), "{page}");
}

#[test]
fn the_table_as_json_has_the_same_rows() {
    let _turn = turn();
    let output = Command::new(binary())
        .args(["demo", "--once", "4s", "-o", "json", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let page: serde_json::Value = serde_json::from_str(&page(&output)).unwrap();
    let rows = page["rows"].as_array().unwrap();
    assert!(rows.len() > 3, "{page}");
    assert!(rows.iter().any(|row| row["throttledShare"].as_f64() > Some(0.1)), "{page}");
    assert!(page["stage"].as_str().unwrap().starts_with("cpuwarden demo: "), "{page}");
}

#[test]
fn a_time_too_short_for_a_table_is_rejected_in_both_forms() {
    for time in ["2", "2s", "soon"] {
        let output = Command::new(binary()).args(["demo", "--once", time]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{time}: {errors}");
        assert!(errors.contains("--once"), "{errors}");
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
