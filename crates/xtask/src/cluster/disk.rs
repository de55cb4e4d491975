//! The node's disk: Debian with systemd, the container runtime and the kubelet. Made once per
//! Kubernetes release; a run discards its writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ClusterError, Release, binaries, cache};
use crate::process;

const SUITE: &str = "bookworm";
/// Packages besides apt's and the essential ones. No udev, network manager or getty: an emulated
/// node boots slowly.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,mount,procps,busybox-static";
/// Size of the disk; the file is sparse.
const SIZE: &str = "6G";

/// Path of the disk image (ext4).
pub(super) fn node_disk(release: &Release) -> Result<PathBuf, ClusterError> {
    let (debian, runtime, kubernetes) =
        (debian()?, binaries::runtime()?, binaries::kubernetes(release)?);
    let runtime_version = runtime.file_name().unwrap_or_default().to_string_lossy();
    cache::entry(&format!("node-{release}-{runtime_version}.ext4"), PACKAGES, |output, scratch| {
        let root = scratch.join("root");
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).map_err(ClusterError::io(&root))?;
        process::run(Command::new("tar").arg("-xf").arg(&debian).arg("-C").arg(&root))?;
        install(
            &runtime,
            &["containerd", "containerd-shim-runc-v2", "ctr", "runc"],
            &root.join("usr/local/bin"),
        )?;
        install(&runtime, &["ptp", "loopback", "host-local"], &root.join("opt/cni/bin"))?;
        install(&kubernetes, &["kubelet"], &root.join("usr/local/bin"))?;
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d"]);
        Ok(process::run(mke2fs.arg(&root).arg(output).arg(SIZE))?)
    })
}

/// A tar archive of Debian's files, by mmdebstrap(1) from this machine's archives.
fn debian() -> Result<PathBuf, ClusterError> {
    cache::entry(&format!("debian-{SUITE}.tar"), PACKAGES, |output, _| {
        let mut mmdebstrap = Command::new("mmdebstrap");
        mmdebstrap.args(["--variant=apt", "--format=tar"]).arg(format!("--include={PACKAGES}"));
        // With --quiet a failure would lack the output of apt and dpkg, which contains the reason.
        process::output_of(mmdebstrap.arg(SUITE).arg(output)).map(drop).map_err(ClusterError::from)
    })
}

fn install(from: &Path, names: &[&str], to: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(to).map_err(ClusterError::io(to))?;
    for name in names {
        fs::copy(from.join(name), to.join(name)).map_err(ClusterError::io(from.join(name)))?;
    }
    Ok(())
}
