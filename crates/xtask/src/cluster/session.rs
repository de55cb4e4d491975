//! A running cluster, and the commands of its tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::certificates::Certificates;
use super::control_plane::{AUDIT_LOG, ControlPlane};
use super::guest::{self, Guest};
use super::network::NODE_NAME;
use super::{ClusterError, Options, Release, binaries, namespace, network, pods};
use crate::prerequisites::write_executable;
use crate::{process, tools};
use serde_json::Value;

/// Maximum time from power-on to a Ready node; emulated, on a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_secs(1200);

/// A running cluster. Ends on drop.
pub struct Cluster {
    /// Kubernetes release of all its parts.
    release: Release,
    programs: PathBuf,
    certificates: Certificates,
    work: PathBuf,
    /// Processes that end with this value; none if another process has started the cluster.
    _control_plane: Option<ControlPlane>,
    /// None also if the nodes are not emulated.
    _node: Option<Guest>,
}

/// Directories below the cluster's.
const PKI: &str = "pki";
const CONTROL_PLANE: &str = "control-plane";

/// Name the directory of the cluster's files and its release to commands that run beside it.
const WORK: &str = "CPUWARDEN_CLUSTER_WORK";
const RELEASE: &str = "CPUWARDEN_CLUSTER_RELEASE";

/// Names the install tests to run, separated by commas; all without it.
pub const ONLY: &str = "CPUWARDEN_CLUSTER_TESTS";

impl Cluster {
    /// The cluster beside which this process runs.
    ///
    /// # Errors
    /// There is none.
    pub fn beside() -> Result<Self, ClusterError> {
        let release = std::env::var(RELEASE).ok().and_then(|text| text.parse().ok());
        let found = release.and_then(|release| Self::existing(release).transpose());
        found.unwrap_or_else(|| {
            let text = "not beside a cluster: run `cargo xtask cluster test`";
            Err(ClusterError::Unexpected(text.into()))
        })
    }

    /// The cluster of `cluster run`, in a command that runs beside it; `None` in others.
    fn existing(release: Release) -> Result<Option<Self>, ClusterError> {
        let Some(work) = std::env::var_os(WORK).map(PathBuf::from) else { return Ok(None) };
        let certificates = Certificates::existing(&work.join(PKI));
        let programs = binaries::kubernetes(&release)?;
        let (_control_plane, _node) = (None, None);
        Ok(Some(Self { release, programs, certificates, work, _control_plane, _node }))
    }

    /// The cluster of `cluster run`, in a command that runs beside it; else starts one.
    pub(super) fn find_or_start(options: &Options, tests: &Path) -> Result<Self, ClusterError> {
        match Self::existing(options.release)? {
            Some(cluster) => Ok(cluster),
            None => Self::start(options, tests),
        }
    }

    /// Starts control plane and node, and waits until the node is Ready. `tests`: the program that
    /// makes the certificates.
    pub(super) fn start(options: &Options, tests: &Path) -> Result<Self, ClusterError> {
        let start = Instant::now();
        let (mut this, mut control_plane) = Self::begin(options.release, tests)?;
        let manifests = pods::static_pods();
        let mut node = Guest::start(options, &this.certificates, &manifests, &this.work)?;
        control_plane.start_controllers(&this.programs, &this.certificates, &[])?;
        await_node(&mut node, start)?;
        (this._control_plane, this._node) = (Some(control_plane), Some(node));
        this.await_ready(start)?;
        Ok(this)
    }

    /// Starts only the control plane, for nodes that the caller makes. The control plane does not
    /// check that they are alive.
    pub(super) fn without_node(release: Release, tests: &Path) -> Result<Self, ClusterError> {
        let (mut this, mut control_plane) = Self::begin(release, tests)?;
        let patient = ["--node-monitor-grace-period=24h"];
        control_plane.start_controllers(&this.programs, &this.certificates, &patient)?;
        this._control_plane = Some(control_plane);
        Ok(this)
    }

    /// Starts etcd and the API server.
    fn begin(release: Release, tests: &Path) -> Result<(Self, ControlPlane), ClusterError> {
        network::set_up()?;
        let work = namespace::work_directory()?;
        let certificates = Certificates::create(&work.join(PKI), tests)?;
        let programs = binaries::kubernetes(&release)?;
        let control_plane =
            ControlPlane::start(&programs, &certificates, &work.join(CONTROL_PLANE))?;
        let (_control_plane, _node) = (None, None);
        let this = Self { release, programs, certificates, work, _control_plane, _node };
        Ok((this, control_plane))
    }

    /// Kubernetes release of all its parts.
    pub fn release(&self) -> Release {
        self.release
    }

    fn await_ready(&self, start: Instant) -> Result<(), ClusterError> {
        let is_ready = || {
            let status = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            Ok(self
                .kubectl(&["get", "node", NODE_NAME, "-o", status])
                .is_ok_and(|status| status == "True"))
        };
        match wait_until("Ready node", NODE_TIMEOUT.saturating_sub(start.elapsed()), is_ready) {
            Ok(_) => eprintln!("==> node Ready after {:.0} s", start.elapsed().as_secs_f64()),
            Err(error) => return Err(self.with_node_log(&error)),
        }
        Ok(())
    }

    /// Adds the end of the node's journal to an error.
    pub(super) fn with_node_log(&self, error: &ClusterError) -> ClusterError {
        let journal =
            self.in_node("journalctl --no-pager --lines=40 --output=cat").unwrap_or_default();
        ClusterError::Unexpected(format!(
            "{}; journal of the node:\n{journal}",
            process::error_chain(error)
        ))
    }

    /// Runs a command beside the cluster.
    pub(super) fn run(&self, command: &[OsString]) -> Result<ExitCode, ClusterError> {
        let shell = [std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
        let words = if command.is_empty() { &shell[..] } else { command };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        self.run_beside(command)
    }

    /// Runs the install tests of this program, or those named.
    pub(super) fn test(&self, tests: &Path, only: &[String]) -> Result<ExitCode, ClusterError> {
        let mut command = Command::new(tests);
        command.args(["--exact", "install", "--ignored", "--nocapture"]);
        command.env(ONLY, only.join(","));
        self.run_beside(command)
    }

    fn run_beside(&self, mut command: Command) -> Result<ExitCode, ClusterError> {
        command.env("KUBECONFIG", self.kubeconfig()).env("PATH", self.path()?);
        command.env(WORK, &self.work).env(RELEASE, format!("1.{}", self.release.minor()));
        let status = command.status().map_err(|source| process::start_error(&command, source))?;
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from))
    }

    /// A program of this cluster's release.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// `PATH` with the cluster's kubectl, helm, and `in-node SCRIPT`.
    ///
    /// # Errors
    /// helm cannot be installed, or the script cannot be written.
    pub fn path(&self) -> Result<OsString, ClusterError> {
        let bin = self.work.join("bin");
        std::fs::create_dir_all(&bin).map_err(ClusterError::io(&bin))?;
        let script = format!(
            "#!/bin/bash\n# Runs a script in the node; the last line is its exit status.\n\
             exec 3<>/dev/tcp/{}/{}\nprintf '%s\\0' \"$*\" >&3\nexec cat <&3\n",
            network::NODE_ADDRESS,
            network::SHELL_PORT
        );
        write_executable(&bin.join("in-node"), &script).map_err(ClusterError::io(&bin))?;
        let helm = tools::helm()?;
        let first =
            [bin, self.programs.clone(), helm.parent().unwrap_or(Path::new("/")).to_owned()];
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let all = first.into_iter().chain(std::env::split_paths(&rest));
        std::env::join_paths(all).map_err(|error| ClusterError::Unexpected(error.to_string()))
    }

    /// Path of the file of a certificate, such as `ca.crt`.
    pub(super) fn certificate(&self, name: &str, extension: &str) -> PathBuf {
        self.certificates.path(name, extension)
    }

    /// Path of the administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.certificates.path("admin", "kubeconfig")
    }

    /// Runs kubectl as the cluster's administrator. Returns its output.
    ///
    /// # Errors
    /// The failed command, with its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        let mut kubectl = Command::new(self.programs.join("kubectl"));
        kubectl.args(arguments).env("KUBECONFIG", self.kubeconfig());
        Ok(String::from_utf8_lossy(&process::output_of(&mut kubectl)?).into_owned())
    }

    /// Creates or changes objects.
    ///
    /// # Errors
    /// The failed command, with its output.
    pub fn apply(&self, manifest: &str) -> Result<String, ClusterError> {
        let path = self.work.join("manifest.yaml");
        super::write(&path, manifest)?;
        self.kubectl(&["apply", "--filename", &path.display().to_string()])
    }

    /// Runs kubectl for a JSON document.
    ///
    /// # Errors
    /// The failed command, with its output; output that is not JSON.
    pub fn get(&self, arguments: &[&str]) -> Result<Value, ClusterError> {
        let text = self.kubectl(&[&["get", "--output=json"], arguments].concat())?;
        serde_json::from_str(&text).map_err(|error| {
            ClusterError::Unexpected(format!("kubectl get {arguments:?}: {error}"))
        })
    }

    /// Answer of the node's kubelet to a `GET`, through the API server.
    ///
    /// # Errors
    /// The failed command, with its output.
    pub fn kubelet(&self, path: &str) -> Result<String, ClusterError> {
        self.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE_NAME}/proxy/{path}")])
    }

    /// Directory of this cluster's files, in memory.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Runs helm as the cluster's administrator. Returns its output.
    ///
    /// # Errors
    /// The failed command, with its output.
    pub fn helm(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        let mut helm = Command::new(tools::helm()?);
        helm.args(arguments).env("KUBECONFIG", self.kubeconfig());
        for (variable, directory) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            helm.env(variable, self.work.join("helm").join(directory));
        }
        Ok(String::from_utf8_lossy(&process::output_of(&mut helm)?).into_owned())
    }

    /// Runs a shell script in the node as root, outside of any pod. Returns its output.
    ///
    /// # Errors
    /// A failed script, with its output.
    pub fn in_node(&self, script: &str) -> Result<String, ClusterError> {
        guest::in_node(script)
    }

    /// The API server's audit log: all requests so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn audit_log(&self) -> Result<Vec<Value>, ClusterError> {
        let path = self.work.join(CONTROL_PLANE).join(AUDIT_LOG);
        let text = std::fs::read_to_string(&path).map_err(ClusterError::io(&path))?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

fn await_node(node: &mut Guest, start: Instant) -> Result<(), ClusterError> {
    let up = wait_until("booted node", NODE_TIMEOUT, || {
        node.check()?;
        Ok(guest::is_up())
    });
    up.map_err(|error| ClusterError::Unexpected(format!("{error}; {}", node.console_tail())))?;
    eprintln!("==> node up after {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Waits until a condition holds. Returns the time it took.
///
/// # Errors
/// The condition does not hold in time, or its own error.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Result<bool, ClusterError>,
) -> Result<Duration, ClusterError> {
    let start = Instant::now();
    loop {
        if condition()? {
            return Ok(start.elapsed());
        }
        if start.elapsed() >= timeout {
            return Err(ClusterError::Unexpected(format!(
                "no {what} within {:.0} s",
                timeout.as_secs_f64()
            )));
        }
        sleep(Duration::from_millis(500));
    }
}
