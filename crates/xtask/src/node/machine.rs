//! The virtual machine: its devices and serial ports, and the wait for its exit.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::outputs::UP;
use super::{Emulator, Forward, Node, NodeError};
use crate::qemu::{self, Qemu};

/// The guest's four serial ports, each backed by a file: console, standard output, standard error,
/// result.
pub(super) struct Ports {
    /// Directory of the files.
    pub(super) directory: PathBuf,
}

const PORT_NAMES: [&str; 4] = ["console", "stdout", "stderr", "result"];

/// Interrupts of the ports. The ISA defaults share each between two ports, and QEMU's interrupt
/// lines cannot be shared.
const PORT_IRQS: [u32; 4] = [4, 3, 5, 7];

impl Ports {
    fn create(&self) -> Result<(), NodeError> {
        PORT_NAMES.iter().try_for_each(|name| {
            File::create(self.path(name)).map(drop).map_err(NodeError::io(self.path(name)))
        })
    }

    pub(super) fn stdout(&self) -> Result<Vec<u8>, NodeError> {
        self.read("stdout")
    }

    pub(super) fn stderr(&self) -> Result<Vec<u8>, NodeError> {
        self.read("stderr")
    }

    pub(super) fn result(&self) -> Result<Vec<u8>, NodeError> {
        self.read("result")
    }

    pub(super) fn console(&self) -> Result<String, NodeError> {
        Ok(String::from_utf8_lossy(&self.read("console")?).replace('\r', ""))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, NodeError> {
        std::fs::read(self.path(name)).map_err(NodeError::io(self.path(name)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Maximum time of a boot by the host's clock. A boot takes 4 s of one CPU, which others may use.
const BOOT_TIMEOUT: Duration = Duration::from_secs(1800);

/// Powers the machine on and returns when the guest is up.
pub(super) fn boot(
    node: &Node,
    kernel: &Path,
    initramfs: &Path,
    directory: &Path,
) -> Result<Machine, NodeError> {
    let ports = Ports { directory: directory.into() };
    let mut machine = Machine::power_on(&Emulator::obtain()?, node, kernel, initramfs, ports)?;
    machine.wait(BOOT_TIMEOUT, Machine::is_up)?;
    if machine.is_up() {
        Ok(machine)
    } else {
        Err(NodeError::NeverUp { console: machine.ports.console()? })
    }
}

/// A running machine, killed on drop.
pub(super) struct Machine {
    qemu: Qemu,
    pub(super) ports: Ports,
    echo: Echo,
}

impl Machine {
    fn power_on(
        emulator: &Emulator,
        node: &Node,
        kernel: &Path,
        initramfs: &Path,
        ports: Ports,
    ) -> Result<Self, NodeError> {
        ports.create()?;
        let stderr_path = ports.path(QEMU_STDERR);
        let stderr = File::create(&stderr_path).map_err(NodeError::io(&stderr_path))?;
        let echo = Echo::new(node.echo, &ports)?;
        let qemu = Qemu::start(command(emulator, node, kernel, initramfs, &ports), stderr)?;
        Ok(Self { qemu, ports, echo })
    }

    /// Whether the guest has reported that it is up and about to start the program.
    fn is_up(&self) -> bool {
        self.ports.result().is_ok_and(|bytes| bytes.starts_with(UP))
    }

    /// Waits until the machine is off (true), or until the condition holds or the timeout expires
    /// (false).
    pub(super) fn wait(
        &mut self,
        timeout: Duration,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<bool, NodeError> {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.qemu.exit_status().map_err(NodeError::io(qemu::PROGRAM))?;
            self.echo.pass_on().map_err(NodeError::io(&self.ports.directory))?;
            match ended {
                Some(status) if status.success() => return Ok(true),
                Some(status) => {
                    let stderr =
                        String::from_utf8_lossy(&self.ports.read(QEMU_STDERR)?).trim().to_owned();
                    return Err(NodeError::Qemu { status, stderr });
                }
                None if condition(self) || Instant::now() >= deadline => return Ok(false),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

const QEMU_STDERR: &str = "qemu-stderr";

fn command(
    emulator: &Emulator,
    node: &Node,
    kernel: &Path,
    initramfs: &Path,
    ports: &Ports,
) -> Command {
    let mut command =
        qemu::command(emulator, node.clock, node.cpus, node.memory_mib, kernel, initramfs, &[]);
    for (index, (name, irq)) in PORT_NAMES.iter().zip(PORT_IRQS).enumerate() {
        command.args(["-chardev", &format!("file,id={name},path={}", ports.path(name).display())]);
        command.args(["-device", &format!("isa-serial,chardev={name},index={index},irq={irq}")]);
    }
    if let Some(Forward { host, guest_port }) = node.forward {
        // restrict: the guest reaches no other host, and is reachable only at this address.
        let forward = format!("hostfwd=tcp:{host}-:{guest_port}");
        qemu::add_network_card(&mut command, "user", &format!("restrict=on,{forward}"));
    }
    command
}

/// Forwards the program's output while it runs.
struct Echo {
    streams: Vec<(File, Box<dyn Write>)>,
}

impl Echo {
    fn new(wanted: bool, ports: &Ports) -> Result<Self, NodeError> {
        let open = |name| File::open(ports.path(name)).map_err(NodeError::io(ports.path(name)));
        let streams: Vec<(File, Box<dyn Write>)> = if wanted {
            vec![
                (open("stdout")?, Box::new(io::stdout())),
                (open("stderr")?, Box::new(io::stderr())),
            ]
        } else {
            Vec::new()
        };
        Ok(Self { streams })
    }

    fn pass_on(&mut self) -> io::Result<()> {
        for (from, to) in &mut self.streams {
            let mut text = Vec::new();
            from.read_to_end(&mut text)?;
            to.write_all(&text)?;
            to.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use crate::qemu::CpuTopology;

    #[test]
    fn every_cpu_and_every_mebibyte_has_its_numa_node() {
        let node = Node {
            cpus: CpuTopology { sockets: 3, cores: 2, threads: 1 },
            memory_mib: 1024,
            ..Node::default()
        };
        let ports = Ports { directory: "/w".into() };
        let emulator = Emulator { root: "/q".into() };
        let line = process::command_line(&command(
            &emulator,
            &node,
            Path::new("k"),
            Path::new("i"),
            &ports,
        ));
        for part in [
            "-smp 6,sockets=3,cores=2,threads=1",
            "id=m0,size=342M",
            "id=m2,size=341M",
            "node,cpus=0-1,nodeid=0",
            "node,cpus=4-5,nodeid=2",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
