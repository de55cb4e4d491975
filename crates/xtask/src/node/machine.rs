//! The virtual machine: QEMU's command line, its serial ports, and the wait for its exit.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use super::outputs::UP;
use super::{Forward, Node, NodeError};
use crate::process;

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

/// Maximum number of boots. QEMU before 8.1 translates code without locking it against patching:
/// about one boot in forty fails on a stale breakpoint of the kernel. No program has run by then,
/// so the boot can be repeated.
const BOOTS: u32 = 3;
/// A boot takes 2 s, and several times that on a busy machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// Powers the machine on and returns when the guest is up.
pub(super) fn boot(
    node: &Node,
    kernel: &Path,
    initramfs: &Path,
    directory: &Path,
) -> Result<Machine, NodeError> {
    let mut console = String::new();
    for _ in 0..BOOTS {
        let mut machine =
            Machine::power_on(node, kernel, initramfs, Ports { directory: directory.into() })?;
        machine.wait(BOOT_TIMEOUT, Machine::is_up)?;
        if machine.is_up() {
            return Ok(machine);
        }
        console = machine.ports.console()?;
    }
    Err(NodeError::NeverUp { boots: BOOTS, console })
}

/// A running QEMU, killed on drop.
pub(super) struct Machine {
    qemu: Child,
    pub(super) ports: Ports,
    echo: Echo,
}

impl Machine {
    fn power_on(
        node: &Node,
        kernel: &Path,
        initramfs: &Path,
        ports: Ports,
    ) -> Result<Self, NodeError> {
        ports.create()?;
        let mut command = command(node, kernel, initramfs, &ports);
        let stderr_path = ports.path(QEMU_STDERR);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&stderr_path).map_err(NodeError::io(&stderr_path))?);
        let echo = Echo::new(node.echo, &ports)?;
        let qemu = command.spawn().map_err(|source| process::start_error(&command, source))?;
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
            let ended = self.qemu.try_wait().map_err(NodeError::io("qemu-system-x86_64"))?;
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

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

const QEMU_STDERR: &str = "qemu-stderr";

/// QEMU's arguments for a machine without devices: emulated, with a NUMA node per socket.
pub(crate) fn machine_arguments(cpus: CpuTopology, memory_mib: u32) -> Vec<String> {
    let CpuTopology { sockets, cores, threads } = cpus;
    let fixed = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-accel",
        "tcg,thread=multi",
    ];
    // vendor: Linux detects SMT siblings only for known vendors. cx16=off: QEMU 7.2 corrupts the
    // flags register in cmpxchg16b, which Linux otherwise uses in its allocator.
    let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-cpu", "max,vendor=GenuineIntel,cx16=off".into());
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

fn command(node: &Node, kernel: &Path, initramfs: &Path, ports: &Ports) -> Command {
    // setpriv kills the machine if this process is killed.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(machine_arguments(node.cpus, node.memory_mib));
    for (index, (name, irq)) in PORT_NAMES.iter().zip(PORT_IRQS).enumerate() {
        command.args(["-chardev", &format!("file,id={name},path={}", ports.path(name).display())]);
        command.args(["-device", &format!("isa-serial,chardev={name},index={index},irq={irq}")]);
    }
    if let Some(Forward { host, guest_port }) = node.forward {
        // restrict: the guest reaches no other host, and is reachable only at this address.
        // romfile: no firmware, since nothing boots from it.
        command.args([
            "-netdev",
            &format!("user,id=net,restrict=on,hostfwd=tcp:{host}-:{guest_port}"),
        ]);
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
    }
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    command.args(["-append", "console=ttyS0 psi=1 quiet panic=-1 cryptomgr.notests"]);
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

    #[test]
    fn a_topology_has_three_numbers() {
        let topology: CpuTopology = "2x3x4".parse().unwrap();
        assert_eq!(topology, CpuTopology { sockets: 2, cores: 3, threads: 4 });
        assert_eq!(topology.count(), 24);
        for bad in ["", "2x2", "2x2x2x2", "0x1x1", "axbxc"] {
            assert!(bad.parse::<CpuTopology>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_cpu_and_every_mebibyte_has_its_numa_node() {
        let node = Node {
            cpus: CpuTopology { sockets: 3, cores: 2, threads: 1 },
            memory_mib: 1024,
            ..Node::default()
        };
        let ports = Ports { directory: "/w".into() };
        let line = process::command_line(&command(&node, Path::new("k"), Path::new("i"), &ports));
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
