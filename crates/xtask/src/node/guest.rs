//! A running guest, from its boot to its outputs.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::machine::{self, Machine};
use super::{Ending, Node, NodeError, Outcome, OutputFile, outputs};

/// A guest with its program, killed on drop.
pub struct Guest {
    machine: Machine,
    outputs: Vec<OutputFile>,
    powered_on: Instant,
    deadline: Instant,
    /// Directory of the serial ports and the initramfs.
    _work: TempDir,
}

impl Guest {
    pub(super) fn boot(
        node: &Node,
        kernel: &Path,
        initramfs: &Path,
        work: TempDir,
    ) -> Result<Self, NodeError> {
        let powered_on = Instant::now();
        let machine = machine::boot(node, kernel, initramfs, work.path())?;
        let deadline = Instant::now() + node.timeout;
        Ok(Self { machine, outputs: node.outputs.clone(), powered_on, deadline, _work: work })
    }

    /// Whether the guest is off: its program has ended, or it was lost.
    ///
    /// # Errors
    /// If QEMU failed.
    pub fn is_off(&mut self) -> Result<bool, NodeError> {
        self.machine.wait(Duration::ZERO, |_| true)
    }

    /// Waits until the guest is off, and kills it after its timeout.
    ///
    /// # Errors
    /// If QEMU failed, or a requested file does not exist.
    pub fn wait(mut self) -> Result<Outcome, NodeError> {
        let is_off = self
            .machine
            .wait(self.deadline.saturating_duration_since(Instant::now()), |_| false)?;
        let ports = &self.machine.ports;
        let (code, archive) = outputs::parse_result(&ports.result()?);
        let ending = match code {
            Some(code) => Ending::Exited(code),
            None if is_off => Ending::Lost,
            None => Ending::TimedOut,
        };
        if let Ending::Exited(_) = ending {
            outputs::unpack(&archive, &self.outputs)?;
        }
        let (stdout, stderr, console) = (ports.stdout()?, ports.stderr()?, ports.console()?);
        Ok(Outcome { ending, stdout, stderr, console, elapsed: self.powered_on.elapsed() })
    }
}
