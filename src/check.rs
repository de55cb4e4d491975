//! Checks the configuration against this machine. `run` needs the results to start; `check-config`
//! reports the errors.

use std::path::Path;

use cgroupfs::{Hierarchy, node};
use endpoint::Identity;
use tls_client::apiserver::{ApiServerConnection, ConfigError};
use watchdog::errors::chain;

use crate::config::Config;
use crate::exit::Failure;
use state_dir::ActingMode;

/// Default minimum number of CPUs in the shared pool, also on small machines.
const SMALL_FLOOR: usize = 2;

/// Results of the checks.
pub(crate) struct Checked {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) identity: Option<Identity>,
}

/// Checks everything that must exist before the agent starts.
///
/// # Errors
/// The option that cannot work here, with the remedy.
pub(crate) fn check(config: &Config) -> Result<Checked, Failure> {
    check_machine(config)?;
    let hierarchy = hierarchy(config)?;
    let identity = config.tls.clone().map(Identity::load).transpose();
    let identity = identity.map_err(|error| Failure::config(error.to_string()))?;
    for (flag, is_wanted) in [
        ("--metrics-auth", config.options.metrics_auth),
        ("--events", config.options.events),
        ("--node-condition", config.options.node_condition),
    ] {
        if is_wanted {
            let needs = |error| match error {
                ConfigError::Missing { setting } => format!("{flag} needs {setting}; set it"),
                error => chain(&error),
            };
            ApiServerConnection::validate(&config.pods.apiserver)
                .map_err(|error| Failure::config(needs(error)))?;
        }
    }
    Ok(Checked { hierarchy, identity })
}

/// Checks the options about the machine: its directories and its CPUs.
///
/// # Errors
/// See [`check`].
pub(crate) fn check_machine(config: &Config) -> Result<(), Failure> {
    let options = &config.options;
    directory("--proc-root", &options.proc_root)?;
    directory("--sys-root", &options.sys_root)?;
    let state_dir = &options.state_dir;
    if state_dir.metadata().is_ok_and(|found| !found.is_dir()) {
        let text = format!(
            "--state-dir: {}: not a directory; set it to the agent's state directory",
            state_dir.display()
        );
        return Err(Failure::config(text));
    }
    let writes = [options.pinning, options.best_effort, options.burst];
    if writes.contains(&ActingMode::Enforce)
        && let Some(file_system) = kernel_file_system(state_dir)
    {
        let text = format!(
            "--state-dir: {}: {file_system} keeps no files; set it to a directory on a disk",
            state_dir.display()
        );
        return Err(Failure::config(text));
    }
    check_cpus(config)
}

/// Name of the file system of the kernel on which this path is, or would be created.
fn kernel_file_system(path: &Path) -> Option<&'static str> {
    let found = path.ancestors().find_map(|ancestor| rustix::fs::statfs(ancestor).ok())?;
    // From linux/magic.h.
    match u64::try_from(found.f_type).ok()? {
        0x9fa0 => Some("procfs"),
        0x6265_6572 => Some("sysfs"),
        0x0027_e0eb | 0x6367_7270 => Some("cgroupfs"),
        _ => None,
    }
}

/// Detects the cgroup hierarchy.
///
/// # Errors
/// See [`check`].
pub(crate) fn hierarchy(config: &Config) -> Result<Hierarchy, Failure> {
    let no_hierarchy = |error| Failure::node(format!("--cgroup-root: {}", chain(&error)));
    Hierarchy::detect(&config.options.cgroup_root).map_err(no_hierarchy)
}

fn directory(flag: &str, path: &Path) -> Result<(), Failure> {
    let remedy = "mount the directory of the node, or correct the path";
    match std::fs::read_dir(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Failure::config(format!("{flag}: {}: {error}; {remedy}", path.display())))
        }
    }
}

/// Checks that the CPUs named by options exist.
fn check_cpus(config: &Config) -> Result<(), Failure> {
    let pinning = &config.pinning;
    // A recorded or minimal sysfs may lack the list. Pinning, which needs it, reports that itself.
    let Ok(possible) = node::cpu_list(&config.options.sys_root, "possible") else { return Ok(()) };
    let absent = pinning.reserved.difference(&possible);
    if !absent.is_empty() {
        let text = format!(
            "--reserved-cpus: this machine has no CPU {absent}, only {possible}; remove it from the list"
        );
        return Err(Failure::config(text));
    }
    let floor = pinning.settings.share_floor;
    if config.options.pinning != ActingMode::Off && floor > SMALL_FLOOR && floor > possible.len() {
        let text = format!(
            "--share-floor: {floor} exceeds the {} CPUs of this machine; lower it",
            possible.len()
        );
        return Err(Failure::config(text));
    }
    Ok(())
}

/// Runs `cpuwarden copy-certificate`. The init container that calls it must not block the agent on
/// nodes where the kubelet has no such file.
///
/// # Errors
/// A file that is not a certificate or contains a key, or a target that cannot be written.
pub(crate) fn copy_certificate(from: &Path, to: &Path) -> Result<(), Failure> {
    let is_copied =
        pod_sources::copy_certificate(from, to).map_err(|error| Failure::config(chain(&error)))?;
    let outcome = if is_copied { "copied" } else { "missing or not readable: nothing copied" };
    crate::output::show(&format!("{}: {outcome}\n", from.display()));
    Ok(())
}
