//! The node: a QEMU machine with the node's disk, and a second disk with the files of this run.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::certificates::Certificates;
use super::network::{self, NODE_ADDRESS, SHELL_PORT, TAP};
use super::{ClusterError, Options, disk, images, write};
use crate::node::{self, Emulator, Kernel, KernelSeries};
use crate::prerequisites::write_executable;
use crate::process;
use crate::qemu::{self, Clock, Qemu};

const MEMORY_MIB: u32 = 4096;
/// Maximum duration of one command in the node.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Debian's kernel has PSI, but not without its option.
const KERNEL_OPTIONS: &str = "net.ifnames=0 systemd.show_status=1 psi=1";
/// Kernel options by which systemd mounts the hierarchies of cgroup v1.
const CGROUP_V1: &str =
    "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1";

const INIT: &str = include_str!("guest/init.sh");
/// Files of the run: path in the node, text.
const FILES: [(&str, &str); 9] = [
    // Sandboxes get copies of these two; without them none starts.
    ("etc/hosts", "127.0.0.1 localhost\n"),
    ("etc/resolv.conf", "nameserver @HOST_ADDRESS@\n"),
    ("etc/containerd/config.toml", include_str!("guest/containerd.toml")),
    ("etc/cni/net.d/pods.conflist", include_str!("guest/cni.conflist")),
    ("etc/kubernetes/kubelet.yaml", include_str!("guest/kubelet.yaml")),
    (
        "etc/systemd/system/cpuwarden-network.service",
        include_str!("guest/cpuwarden-network.service"),
    ),
    ("etc/systemd/system/containerd.service", include_str!("guest/containerd.service")),
    ("etc/systemd/system/kubelet.service", include_str!("guest/kubelet.service")),
    ("etc/systemd/system/shell.socket", include_str!("guest/shell.socket")),
];
const SHELL_SERVICE: (&str, &str) =
    ("etc/systemd/system/shell@.service", include_str!("guest/shell@.service"));
/// Units that systemd starts, with the target that wants them.
const ENABLED: [(&str, &str); 4] = [
    ("multi-user.target", "cpuwarden-network.service"),
    ("multi-user.target", "containerd.service"),
    ("multi-user.target", "kubelet.service"),
    ("sockets.target", "shell.socket"),
];
/// Units of Debian that an emulated node of one command does not need.
const MASKED: [&str; 6] = [
    "systemd-logind.service",
    "getty.target",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
];

/// A running node, killed on drop.
pub(super) struct Guest {
    qemu: Qemu,
    console: PathBuf,
}

impl Guest {
    /// Powers the node on.
    pub(super) fn start(
        options: &Options,
        certificates: &Certificates,
        manifests: &[(&str, String)],
        work: &Path,
    ) -> Result<Self, ClusterError> {
        let kernel = kernel()?;
        let disk = disk::node_disk(&options.release)?;
        let (initramfs, run_disk) =
            (initramfs(&kernel, work)?, run_disk(options, certificates, manifests, work)?);
        let console = work.join("console");
        let mut command = qemu::command(
            &Emulator::obtain()?,
            Clock::Real,
            options.cpus,
            MEMORY_MIB,
            &kernel.image,
            &initramfs,
            if options.cgroup_v1 { &[KERNEL_OPTIONS, CGROUP_V1] } else { &[KERNEL_OPTIONS] },
        );
        command.arg("-chardev").arg(format!("file,id=console,path={}", console.display()));
        command.args(["-device", "isa-serial,chardev=console"]);
        let drive = |id: &str, path: &Path| {
            format!("file={},id={id},if=none,format=raw,snapshot=on", path.display())
        };
        for (id, path) in [("system", &disk), ("run", &run_disk)] {
            command.args([
                "-drive",
                &drive(id, path),
                "-device",
                &format!("virtio-blk-pci,drive={id}"),
            ]);
        }
        let tap = format!("ifname={TAP},script=no,downscript=no");
        qemu::add_network_card(&mut command, "tap", &tap);
        let errors = work.join("qemu.log");
        let errors = File::create(&errors).map_err(ClusterError::io(&errors))?;
        let qemu = Qemu::start(command, errors)?;
        Ok(Self { qemu, console })
    }

    /// Fails if the machine has ended.
    pub(super) fn check(&mut self) -> Result<(), ClusterError> {
        match self.qemu.exit_status().map_err(ClusterError::io(qemu::PROGRAM))? {
            None => Ok(()),
            Some(status) => Err(ClusterError::Unexpected(format!(
                "the node ended ({status}); {}",
                self.console_tail()
            ))),
        }
    }

    /// The end of the console.
    pub(super) fn console_tail(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        let lines: Vec<_> = text.lines().rev().take(30).collect();
        format!("its console:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

/// Runs a shell script in the node as root, outside of any pod. Returns its output.
pub(super) fn in_node(script: &str) -> Result<String, ClusterError> {
    let failed = |error| ClusterError::io(format!("node: {script}"))(error);
    let address = (NODE_ADDRESS, SHELL_PORT);
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(COMMAND_TIMEOUT)).map_err(failed)?;
    stream.write_all(script.as_bytes()).map_err(failed)?;
    stream.shutdown(Shutdown::Write).map_err(failed)?;
    let mut output = Vec::new();
    stream.read_to_end(&mut output).map_err(failed)?;
    let output = String::from_utf8_lossy(&output).into_owned();
    match output.rsplit_once('\n') {
        Some((text, "0")) => Ok(text.to_owned()),
        _ => Err(ClusterError::Unexpected(format!("in the node, `{script}`: {output}"))),
    }
}

/// Whether the node accepts commands.
pub(super) fn is_up() -> bool {
    let address = format!("{NODE_ADDRESS}:{SHELL_PORT}").parse();
    address
        .is_ok_and(|address| TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
}

/// Downloads emulator and kernel if they are missing: a cluster reaches no network but its own.
pub(super) fn download_machine() -> Result<(), ClusterError> {
    Emulator::obtain()?;
    kernel().map(drop)
}

fn kernel() -> Result<Kernel, ClusterError> {
    Ok(node::obtain_kernel(KernelSeries::V6_1)?)
}

/// Shell, modules and init, as a cpio archive.
fn initramfs(kernel: &Kernel, work: &Path) -> Result<PathBuf, ClusterError> {
    let root = work.join("initramfs");
    let copy = |from: &Path, to: &str| {
        let to = root.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&root)).map_err(ClusterError::io(&to))?;
        fs::copy(from, &to).map(drop).map_err(ClusterError::io(from))
    };
    copy(Path::new("/bin/busybox"), "bin/busybox")?;
    for (at, module) in kernel.network_modules.iter().chain(&kernel.cluster_modules).enumerate() {
        copy(
            module,
            &format!(
                "modules/{at:02}-{}",
                module.file_name().unwrap_or_default().to_string_lossy()
            ),
        )?;
    }
    write_executable(&root.join("init"), INIT).map_err(ClusterError::io(root.join("init")))?;
    let archive = work.join("initramfs.cpio");
    let mut cpio = Command::new("sh");
    cpio.args(["-c", "find . | cpio --quiet --create --format=newc --owner=0:0"])
        .current_dir(&root);
    cpio.stdout(File::create(&archive).map_err(ClusterError::io(&archive))?);
    process::run(&mut cpio)?;
    Ok(archive)
}

/// The files of this run, as a tar archive that init unpacks over the node's disk.
fn run_disk(
    options: &Options,
    certificates: &Certificates,
    manifests: &[(&str, String)],
    work: &Path,
) -> Result<PathBuf, ClusterError> {
    let root = work.join("node");
    for (path, text) in FILES.into_iter().chain([SHELL_SERVICE]) {
        write(&root.join(path), network::fill(text))?;
    }
    for (target, unit) in ENABLED {
        link(&root, &format!("{target}.wants/{unit}"), &format!("../{unit}"))?;
    }
    for unit in MASKED {
        link(&root, unit, "/dev/null")?;
    }
    for (name, text) in manifests {
        write(&root.join("etc/kubernetes/manifests").join(name), text)?;
    }
    write(&root.join("etc/hostname"), network::NODE_NAME)?;
    write(&root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    for (name, extension, to) in
        [("ca", "crt", "ca.crt"), ("kubelet", "kubeconfig", "kubelet.conf")]
    {
        let from = certificates.path(name, extension);
        let to = root.join("etc/kubernetes").join(to);
        fs::copy(&from, &to).map_err(ClusterError::io(&from))?;
    }
    images::write_all(options, &root.join("var/lib/cpuwarden-images"))?;
    let archive = work.join("run.tar");
    process::run(
        Command::new("tar")
            .args(["--owner=0", "--group=0", "-cf"])
            .arg(&archive)
            .arg("-C")
            .arg(&root)
            .arg("."),
    )?;
    // QEMU rounds a disk down to whole sectors.
    let file = File::options().write(true).open(&archive).map_err(ClusterError::io(&archive))?;
    let length = file.metadata().map_err(ClusterError::io(&archive))?.len();
    file.set_len(length.next_multiple_of(1 << 20)).map_err(ClusterError::io(&archive))?;
    Ok(archive)
}

fn link(root: &Path, name: &str, target: &str) -> Result<(), ClusterError> {
    let path = root.join("etc/systemd/system").join(name);
    fs::create_dir_all(path.parent().unwrap_or(root)).map_err(ClusterError::io(&path))?;
    symlink(target, &path).map_err(ClusterError::io(&path))
}
