//! `promtool check metrics`, Prometheus's own linter, reports nothing.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Output, Stdio};

use metrics::{Exposition, Format};

use crate::{NO_CAP, snapshots};

fn promtool(page: &[u8]) -> Output {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("promtool is not installed: `apt-get install prometheus`"),
        _ => panic!("promtool does not start: {error}"),
    });
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    stdin.write_all(page).expect("promtool reads all of its input");
    drop(stdin);
    child.wait_with_output().expect("promtool ends at the end of its input")
}

#[test]
fn promtool_finds_nothing_on_the_maximal_page() {
    let mut exposition = Exposition::new(NO_CAP);
    let output =
        promtool(exposition.render(&snapshots::maximal(), &snapshots::agent(), Format::Text));
    let output_text =
        String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output_text.is_empty(), "{}: {output_text}", output.status);
}

#[test]
fn promtool_rejects_an_invalid_page() {
    let output = promtool(b"# HELP a_total h\n# TYPE a_total gauge\na_total 1\n");
    assert!(!output.status.success());
}
