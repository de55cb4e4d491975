//! A container's process: this binary again, running a workload until its parent exits.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Subcommand;
use humantime::format_duration;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Use of CPU time by a process. Also the arguments of the hidden subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Workload {
    /// One thread runs without a pause
    Spin {
        /// On this CPU only
        #[arg(long)]
        cpu: Option<usize>,
    },
    /// One thread uses this CPU time at the start of each interval
    Burst {
        /// CPU time of a burst
        #[arg(long, value_parser = humantime::parse_duration)]
        busy: Duration,
        /// Interval between the starts of bursts
        #[arg(long, value_parser = humantime::parse_duration)]
        every: Duration,
    },
    /// Sleeps
    Idle,
}

impl Workload {
    fn arguments(self) -> Vec<OsString> {
        let words = match self {
            Self::Spin { cpu: None } => vec!["spin".to_owned()],
            Self::Spin { cpu: Some(cpu) } => vec!["spin".to_owned(), format!("--cpu={cpu}")],
            Self::Burst { busy, every } => {
                let (busy, every) = (format_duration(busy), format_duration(every));
                vec!["burst".to_owned(), format!("--busy={busy}"), format!("--every={every}")]
            }
            Self::Idle => vec!["idle".to_owned()],
        };
        words.into_iter().map(OsString::from).collect()
    }
}

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
        command.arg("demo-workload").args(workload.arguments());
        // In a process group of its own: Ctrl-C is for the demo, which then ends its workloads.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut process = Self { child };
        let mut word = [0];
        let stdout =
            process.child.stdout.as_mut().context("the workload has no standard output")?;
        stdout.read_exact(&mut word).context("the workload exited during its start")?;
        Ok(process)
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

/// The hidden subcommand: reports that it is ready, waits for the start signal on standard input,
/// works, and exits when standard input closes, which happens however the demo ends.
pub fn run(workload: Workload) -> anyhow::Result<()> {
    io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush())?;
    let mut word = [0];
    if io::stdin().read(&mut word)? == 0 {
        return Ok(());
    }
    match workload {
        Workload::Spin { cpu } => {
            if let Some(cpu) = cpu {
                pin(cpu)?;
            }
            std::thread::spawn(|| testkit::load::spin());
        }
        Workload::Burst { busy, every } => {
            std::thread::spawn(move || testkit::load::burst(Instant::now(), busy, every));
        }
        Workload::Idle => {}
    }
    let _ = io::stdin().read(&mut word);
    Ok(())
}

/// Threads that are started from here on inherit it.
fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)
        .with_context(|| format!("cannot set the CPU affinity to CPU {cpu}"))
}
