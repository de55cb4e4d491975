//! QEMU from Debian 13's packages, with the libraries that it needs, in `target/node/qemu`.
//!
//! QEMU before 8.1, as Debian 12 has it, translates code without locking it against patching. Linux
//! patches itself whenever a trace is attached; an emulated CPU then runs a half-patched
//! instruction, and the guest crashes or hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::NodeError;
use super::apt::{self, PrivateApt};
use crate::make_once::{FileError, make_once};
use crate::process;
use crate::workspace;

/// The suite, and the version of the cache.
const SUITE: &str = "trixie";
const PACKAGE: &str = "qemu-system-x86";
/// Libraries below the cache.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Firmware below the cache: QEMU's own, the BIOS, and of network cards.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// An unpacked QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Emulator {
    /// Directory of the unpacked packages.
    pub(super) root: PathBuf,
}

impl Emulator {
    /// QEMU, downloaded unless it is in `target/node` already.
    ///
    /// # Errors
    /// [`NodeError::NoEmulator`] with all attempts; I/O errors of the cache.
    pub(crate) fn obtain() -> Result<Self, NodeError> {
        let node = workspace::target_dir().join("node");
        let root = make_once(&node, "qemu", SUITE, |root| fetch(&node, root))?;
        Ok(Self { root })
    }

    /// A command that runs QEMU with its own libraries and firmware. The machine is killed if this
    /// process is killed.
    pub(crate) fn command(&self) -> Command {
        let libraries = self.root.join(LIBRARIES);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        command.arg(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries);
        command.arg(self.root.join("usr/bin/qemu-system-x86_64"));
        for directory in FIRMWARE {
            command.arg("-L").arg(self.root.join(directory));
        }
        command
    }
}

fn fetch(node: &Path, root: &Path) -> Result<(), NodeError> {
    let apt_directory = node.join("qemu.apt");
    let mut attempts = Vec::new();
    for archive in apt::machine_archives(node)? {
        match fetch_from(&apt_directory, &archive, root) {
            Ok(()) => {
                let _ = fs::remove_dir_all(apt_directory);
                return Ok(());
            }
            Err(error) => {
                attempts.push(format!("{archive} {SUITE}: {}", process::error_chain(&error)));
            }
        }
    }
    Err(NodeError::NoEmulator { attempts })
}

fn fetch_from(apt_directory: &Path, archive: &str, root: &Path) -> Result<(), NodeError> {
    let packages = PrivateApt::new(apt_directory, archive, SUITE)?.download_with_all(PACKAGE)?;
    fs::create_dir_all(root).map_err(FileError::new(root))?;
    for package in packages {
        process::output_of(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root))?;
    }
    Ok(())
}
