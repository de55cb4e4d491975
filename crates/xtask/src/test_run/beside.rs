//! Load next to the tests: processes that spin in a cgroup of normal weight.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mount of the CPU controller: cgroup v1's, or the unified hierarchy.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/// The load cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("--beside needs root and a writable cgroup hierarchy: {}", path.display())]
pub struct BesideError {
    path: PathBuf,
    source: io::Error,
}

/// Spinning processes in a sibling of the tests' cgroups; they end, and the cgroup is removed, on
/// drop.
pub(super) struct Beside {
    spinners: Vec<Child>,
    cgroup: PathBuf,
}

impl Beside {
    /// Starts this number of spinners; `None` for 0.
    pub(super) fn start(number: u32) -> Result<Option<Self>, BesideError> {
        if number == 0 {
            return Ok(None);
        }
        let mount = MOUNTS.iter().map(Path::new).find(|mount| mount.join("cgroup.procs").exists());
        let mount = mount.unwrap_or(Path::new(MOUNTS[1]));
        let cgroup = mount.join(format!("cpuwarden-beside-{}", std::process::id()));
        let failed = |source| BesideError { path: cgroup.clone(), source };
        fs::create_dir(&cgroup).map_err(failed)?;
        let mut beside = Self { spinners: Vec::new(), cgroup: cgroup.clone() };
        for _ in 0..number {
            let script = r#"echo $$ > "$0/cgroup.procs" && while :; do :; done"#;
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "sh", "-c", script]).arg(&cgroup);
            beside.spinners.push(command.stdin(Stdio::null()).spawn().map_err(failed)?);
        }
        Ok(Some(beside))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for spinner in &mut self.spinners {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
        if let Err(error) = fs::remove_dir(&self.cgroup) {
            eprintln!("{}: {error}", self.cgroup.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinners_run_in_a_cgroup_that_is_gone_afterwards() {
        let beside = Beside::start(2).unwrap().unwrap();
        let procs = || fs::read_to_string(beside.cgroup.join("cgroup.procs")).unwrap_or_default();
        while procs().lines().count() < 2 {
            std::thread::yield_now();
        }
        let (cgroup, pids) = (beside.cgroup.clone(), procs());
        drop(beside);
        assert!(!cgroup.exists());
        assert!(pids.lines().all(|pid| !Path::new("/proc").join(pid).exists()));
    }

    #[test]
    fn no_spinner_needs_no_cgroup() {
        assert!(Beside::start(0).unwrap().is_none());
    }
}
