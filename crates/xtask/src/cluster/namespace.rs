//! Network, PID and mount namespaces around a cluster, entered by executing this program again.
//!
//! The kernel kills every process of a PID namespace with its first one, and that one is killed
//! with this process: a cluster never outlives its command, even if that is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::{ClusterError, cache};
use crate::process;

/// Set inside the namespaces.
const INSIDE: &str = "CPUWARDEN_CLUSTER_NAMESPACE";

/// Runs `inside` in fresh namespaces. Outside, executes this program with the same arguments in
/// them and waits.
pub(super) fn enter(
    inside: impl FnOnce() -> Result<ExitCode, ClusterError>,
) -> Result<ExitCode, ClusterError> {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let this = std::env::current_exe().map_err(ClusterError::io("/proc/self/exe"))?;
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let mut command = command(&this);
    let status = command
        .args(arguments)
        .status()
        .map_err(|source| process::start_error(&command, source))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// A directory for the files of a cluster, in memory: only this mount namespace has it, and it ends
/// with it.
pub(super) fn work_directory() -> Result<PathBuf, ClusterError> {
    let path = cache::directory()?.join("run");
    std::fs::create_dir_all(&path).map_err(ClusterError::io(&path))?;
    process::run(Command::new("mount").args(["-t", "tmpfs", "cpuwarden-cluster"]).arg(&path))?;
    Ok(path)
}

fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.arg(program).env(INSIDE, "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_end_with_this_process() {
        let line = process::command_line(&command(Path::new("/xtask")));
        assert_eq!(
            line,
            "setpriv --pdeathsig KILL unshare --net --pid --fork --kill-child --mount-proc /xtask"
        );
    }
}
