//! QEMU: the command line that all machines share, and the process.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;

use crate::node::Emulator;
use crate::process::{self, CommandError};

/// Program that emulates a machine, as errors name it.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Kernel options of every machine. With mitigations, each system call switches page tables, and the
/// emulator drops its translated addresses: a third of its time.
const KERNEL_OPTIONS: [&str; 6] =
    ["console=ttyS0", "psi=1", "quiet", "panic=-1", "cryptomgr.notests", "mitigations=off"];

/// Virtual CPUs. Each socket is a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTopology {
    /// Number of sockets.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl CpuTopology {
    /// Total number of CPUs.
    pub fn count(self) -> u32 {
        self.sockets * self.cores * self.threads
    }
}

impl FromStr for CpuTopology {
    type Err = String;

    /// Parses `SOCKETSxCORESxTHREADS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u32>> =
            text.split('x').map(|part| part.parse().ok().filter(|n| *n > 0)).collect();
        match numbers.as_deref() {
            Some(&[sockets, cores, threads]) => Ok(Self { sockets, cores, threads }),
            _ => Err("expected SOCKETSxCORESxTHREADS, such as 2x2x2".into()),
        }
    }
}

/// Clock of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// Counts instructions: each takes 32 ns of guest time, and an idle guest skips to its next
    /// timer. The load of the host has no influence. All guest CPUs share one host thread and the
    /// count, so two busy guest CPUs each run at half speed.
    Virtual,
    /// The clock of the host, and one host thread per guest CPU. For a guest that exchanges data
    /// with the host.
    Real,
}

impl Clock {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Virtual => &[
                "-accel",
                "tcg,thread=single",
                "-icount",
                "shift=5,sleep=off,align=off",
                "-rtc",
                "clock=vm",
            ],
            Self::Real => &["-accel", "tcg,thread=multi"],
        }
    }
}

/// A running QEMU, killed on drop.
pub(crate) struct Qemu(Child);

impl Qemu {
    /// Powers the machine on. QEMU writes its errors to `stderr`.
    pub(crate) fn start(mut command: Command, stderr: File) -> Result<Self, CommandError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().map_err(|source| process::start_error(&command, source))?;
        Ok(Self(child))
    }

    /// QEMU's exit status, if the machine is off.
    pub(crate) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine without devices that boots this kernel, with more kernel options if there are any.
pub(crate) fn command(
    emulator: &Emulator,
    clock: Clock,
    cpus: CpuTopology,
    memory_mib: u32,
    kernel: &Path,
    initramfs: &Path,
    kernel_options: &[&str],
) -> Command {
    let mut command = emulator.command();
    command.args(clock.arguments()).args(machine_arguments(cpus, memory_mib));
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    command.args(["-append", &[&KERNEL_OPTIONS[..], kernel_options].concat().join(" ")]);
    command
}

/// Adds a network card of this backend.
pub(crate) fn add_network_card(command: &mut Command, backend: &str, options: &str) {
    command.args(["-netdev", &format!("{backend},id=net,{options}")]);
    // romfile: no firmware, since nothing boots from it.
    command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
}

/// QEMU's arguments for a machine without devices: emulated, with a NUMA node per socket.
fn machine_arguments(cpus: CpuTopology, memory_mib: u32) -> Vec<String> {
    let CpuTopology { sockets, cores, threads } = cpus;
    let fixed = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"];
    // vendor: Linux detects SMT siblings only for known vendors. erms, fsrm: with them, Linux and
    // libc copy byte by byte with `rep movsb`, and the emulator executes each byte as an instruction.
    let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-cpu", "max,vendor=GenuineIntel,-erms,-fsrm".into());
    add("-m", memory_mib.to_string());
    add("-smp", format!("{},sockets={sockets},cores={cores},threads={threads}", cpus.count()));
    let per_socket = cores * threads;
    for socket in 0..sockets {
        let (first, last) = (socket * per_socket, (socket + 1) * per_socket - 1);
        let size_mib = memory_mib / sockets + if socket == 0 { memory_mib % sockets } else { 0 };
        add("-object", format!("memory-backend-ram,id=m{socket},size={size_mib}M"));
        add("-numa", format!("node,cpus={first}-{last},nodeid={socket},memdev=m{socket}"));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_has_three_numbers() {
        let topology: CpuTopology = "2x3x4".parse().unwrap();
        assert_eq!(topology, CpuTopology { sockets: 2, cores: 3, threads: 4 });
        assert_eq!(topology.count(), 24);
        for bad in ["", "2x2", "2x2x2x2", "0x1x1", "axbxc"] {
            assert!(bad.parse::<CpuTopology>().is_err(), "{bad}");
        }
    }
}
