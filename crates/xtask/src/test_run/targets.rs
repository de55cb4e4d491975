//! The test binaries of the workspace, from cargo's messages.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::cargo;
use crate::process::{self, CommandError};

/// One test binary, or the documentation tests of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// Arguments of `cargo test` that run only this target: `-p cpuwarden --test it`.
    pub(super) arguments: String,
    /// Path of the program.
    pub(super) program: PathBuf,
    /// Directory of the package: the tests' working directory.
    pub(super) directory: PathBuf,
}

/// The test binaries could not be built.
#[derive(Debug, thiserror::Error)]
pub enum TargetsError {
    /// Cargo failed; it printed its errors.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An unexpected message of cargo.
    #[error("cargo test --message-format=json: unexpected message: {0}")]
    Message(String),
}

/// Builds all test binaries.
///
/// # Errors
/// A failed build.
pub(super) fn build() -> Result<Vec<Target>, TargetsError> {
    build_selected(&["--workspace"])
}

/// Builds one integration test. Returns its program.
///
/// # Errors
/// A failed build.
pub(crate) fn build_one(package: &str, test: &str) -> Result<PathBuf, TargetsError> {
    let built = build_selected(&["--package", package, "--test", test])?;
    let none = || TargetsError::Message(format!("no test {test} of {package}"));
    built.into_iter().next().map(|target| target.program).ok_or_else(none)
}

fn build_selected(selection: &[&str]) -> Result<Vec<Target>, TargetsError> {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-run"]).args(selection);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output =
        process::output(&mut command).map_err(|source| process::start_error(&command, source))?;
    if !output.status.success() {
        return Err(process::failed(&command, output.status, "").into());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    messages.lines().filter_map(|line| parse(line).transpose()).collect()
}

/// The test binary that a message reports; `None` for other messages.
fn parse(line: &str) -> Result<Option<Target>, TargetsError> {
    let unexpected = || TargetsError::Message(line.to_owned());
    let message: Value = serde_json::from_str(line).map_err(|_| unexpected())?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let Some(program) = message["executable"].as_str().filter(|_| is_test) else {
        return Ok(None);
    };
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unexpected);
    let manifest = text(&message["manifest_path"])?;
    let package = package_name(&text(&message["package_id"])?).to_owned();
    let (name, kind) = (text(&message["target"]["name"])?, text(&message["target"]["kind"][0])?);
    let selection = match kind.as_str() {
        "lib" => "--lib".to_owned(),
        kind => format!("--{kind} {name}"),
    };
    Ok(Some(Target {
        arguments: format!("-p {package} {selection}"),
        program: program.into(),
        directory: Path::new(&manifest).parent().ok_or_else(unexpected)?.to_owned(),
    }))
}

/// `nri` of `path+file:///w/crates/nri#0.1.0` or `path+file:///w#cpuwarden@0.1.0`.
fn package_name(id: &str) -> &str {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_in_messages_of_cargo() {
        let message = |id: &str, kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/crates/a/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"t"}},"profile":{{"test":{test}}},"executable":"/t/a-1"}}"#
            )
            .replace('\n', "")
        };
        let target = parse(&message("path+file:///w/crates/a#0.1.0", "test", true)).unwrap();
        let expected = Target {
            arguments: "-p a --test t".into(),
            program: "/t/a-1".into(),
            directory: "/w/crates/a".into(),
        };
        assert_eq!(target, Some(expected));
        let lib = parse(&message("path+file:///w#b@0.1.0", "lib", true)).unwrap().unwrap();
        assert_eq!(lib.arguments, "-p b --lib");
        assert_eq!(parse(&message("path+file:///w#b@0.1.0", "lib", false)).unwrap(), None);
        assert_eq!(parse(r#"{"reason":"build-finished","success":true}"#).unwrap(), None);
        assert!(parse("warning: unused").is_err());
    }
}
