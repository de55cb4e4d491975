//! The configuration against this machine: what `run` needs before it begins, and what `check-config` finds out by it.

use std::path::Path;

use cgroupfs::{Hierarchy, node};
use pods::{ConfigError, PodService};

use crate::config::{Config, PinningMode, chain};
use crate::exit::Failure;
use crate::serve::Identity;

/// CPUs of the share pool where nothing else is said: also on smaller machines.
const SMALL_FLOOR: usize = 2;

/// What was found good.
pub(crate) struct Checked {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) identity: Option<Identity>,
}

/// Checks everything that must be there before the agent starts.
///
/// # Errors
/// The option that cannot work here, and the remedy.
pub(crate) fn check(config: &Config) -> Result<Checked, Failure> {
    check_machine(config)?;
    let hierarchy = hierarchy(config)?;
    let identity = config.tls.clone().map(Identity::load).transpose()?;
    for (flag, is_wanted) in [("--metrics-auth", config.metrics_auth), ("--events", config.pinning.events)] {
        if is_wanted {
            let needs = |error| match error {
                ConfigError::Missing { setting, .. } => format!("{flag} needs {setting}; give it"),
                error => chain(&error),
            };
            PodService::validate_apiserver(&config.pods).map_err(|error| Failure::config(needs(error)))?;
        }
    }
    Ok(Checked { hierarchy, identity })
}

/// Checks what is said of the machine: its directories and its CPUs.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_machine(config: &Config) -> Result<(), Failure> {
    directory("--proc-root", &config.proc_root)?;
    directory("--sys-root", &config.sys_root)?;
    let state_dir = &config.pinning.state_dir;
    if state_dir.metadata().is_ok_and(|found| !found.is_dir()) {
        let text = format!("--state-dir: {}: Not a directory; name that of the agent", state_dir.display());
        return Err(Failure::config(text));
    }
    check_cpus(config)
}

/// The cgroup hierarchy.
///
/// # Errors
/// As [`check`].
pub(crate) fn hierarchy(config: &Config) -> Result<Hierarchy, Failure> {
    let no_hierarchy = |error| Failure::node(format!("--cgroup-root: {}", chain(&error)));
    Hierarchy::detect(&config.cgroup_root).map_err(no_hierarchy)
}

fn directory(flag: &str, path: &Path) -> Result<(), Failure> {
    let remedy = "mount the node's, or correct the path";
    match std::fs::read_dir(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::config(format!("{flag}: {}: {error}; {remedy}", path.display()))),
    }
}

/// CPUs that are spoken of must exist.
fn check_cpus(config: &Config) -> Result<(), Failure> {
    let pinning = &config.pinning;
    // A recorded or very small sysfs may not say which there are; pinning says so itself where it is wanted.
    let Ok(possible) = node::cpu_list(&config.sys_root, "possible") else { return Ok(()) };
    let absent = pinning.reserved.difference(&possible);
    if !absent.is_empty() {
        let text = format!("--reserved-cpus: this machine has no CPU {absent}, only {possible}; leave them out");
        return Err(Failure::config(text));
    }
    let floor = pinning.settings.share_floor;
    if pinning.mode != PinningMode::Off && floor > SMALL_FLOOR && floor > possible.len() {
        let text = format!("--share-floor: {floor} CPUs of only {}; lower it", possible.len());
        return Err(Failure::config(text));
    }
    Ok(())
}

/// `cpuwarden copy-certificate`: for an init container, which must not keep the agent from starting where the kubelet has
/// no such file.
///
/// # Errors
/// The file is no certificate, or holds a key; or the target cannot be written.
pub(crate) fn copy_certificate(from: &Path, to: &Path) -> Result<(), Failure> {
    let is_copied = pods::copy_certificate(from, to).map_err(|error| Failure::config(chain(&error)))?;
    let outcome = if is_copied { "copied" } else { "does not exist, or may not be read: nothing is copied" };
    crate::output::show(&format!("{}: {outcome}\n", from.display()));
    Ok(())
}
