//! A container's process: this binary again, running a workload until its parent exits.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use testkit::{READY, Workload};

/// A workload's process, waiting or running; dropping it ends it.
pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Starts the process and returns when it is ready; it does nothing until [`Process::go`]. The
    /// CPU time of its start is not charged to its container.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub(super) fn spawn(workload: Workload) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot read this program's path")?;
        let mut command = Command::new(&program);
        command.args(["demo-workload", &workload.to_string()]);
        // In a process group of its own: Ctrl-C is for the demo, which then ends its workloads.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut process = Self { child };
        let mut line = [0; READY.len() + 2];
        let stdout =
            process.child.stdout.as_mut().context("the workload has no standard output")?;
        stdout.read_exact(&mut line).context("the workload exited during its start")?;
        Ok(process)
    }

    /// Lets it run on this CPU only. Not before it is in its cgroup: on Linux 6.1, the entry into a
    /// cpuset resets the affinity.
    ///
    /// # Errors
    /// The CPU is not available to it.
    pub(super) fn pin(&self, cpu: usize) -> anyhow::Result<()> {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        sched_setaffinity(Some(Pid::from_child(&self.child)), &cpus)
            .with_context(|| format!("cannot set the CPU affinity of a workload to CPU {cpu}"))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it begin.
    ///
    /// # Errors
    /// The process has already ended.
    pub(super) fn go(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that is gone already cannot be killed, and is still to be waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The hidden subcommand: a container's process, which exits however the demo ends.
///
/// # Errors
/// The standard streams are closed.
pub fn run(workload: Workload) -> anyhow::Result<()> {
    Ok(Workload::run(&[workload])?)
}
