//! The guest's files: a tree of links that cpio(1) follows, so that no file is copied twice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{GuestFile, NodeError, OutputFile, init_script, shared_libraries};
use crate::process;

/// The program to run.
pub(super) struct GuestProgram {
    host_path: PathBuf,
    /// Path in the guest.
    pub(super) guest_path: PathBuf,
}

impl GuestProgram {
    /// Finds a program by path, or by name in `PATH`.
    pub(super) fn locate(program: &Path) -> Result<Self, NodeError> {
        let not_found = || NodeError::NoSuchFile(program.into());
        let host_path =
            if program.components().count() > 1 { Some(program.into()) } else { in_path(program) };
        let host_path = host_path.filter(|path: &PathBuf| path.is_file()).ok_or_else(not_found)?;
        let name = program.file_name().ok_or_else(not_found)?;
        Ok(Self { guest_path: Path::new("/usr/local/bin").join(name), host_path })
    }
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Writes the initramfs into `work` and returns its path. Not compressed, which would cost the
/// guest seconds.
pub(super) fn build(
    work: &Path,
    program: &GuestProgram,
    command: &str,
    files: &[GuestFile],
    outputs: &[OutputFile],
) -> Result<PathBuf, NodeError> {
    let busybox =
        in_path(Path::new("busybox")).ok_or_else(|| NodeError::NoSuchFile("busybox".into()))?;
    let mut tree = Tree::new(work.join("tree"));
    tree.text("init", init_script::INIT, 0o755)?;
    tree.text("node/command", command, 0o644)?;
    let outputs: String =
        outputs.iter().map(|output| format!("{}\n", output.guest.display())).collect();
    tree.text("node/outputs", &outputs, 0o644)?;
    tree.text(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        0o644,
    )?;
    tree.text("etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)?;
    tree.text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0o644)?;
    tree.program(&busybox, Path::new("/bin/busybox"))?;
    tree.program(&program.host_path, &program.guest_path)?;
    for file in files {
        tree.program(&file.source, &file.dest)?;
    }
    tree.pack(&work.join("initramfs.cpio"))
}

/// The guest's root directory under construction.
struct Tree {
    root: PathBuf,
    /// Links to create: guest path to host path.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Tree {
    fn new(root: PathBuf) -> Self {
        Self { root, links: BTreeMap::new() }
    }

    fn text(&self, path: &str, text: &str, mode: u32) -> Result<(), NodeError> {
        let path = self.root.join(path);
        make_parent(&path)?;
        fs::write(&path, text).map_err(NodeError::io(&path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(NodeError::io(&path))
    }

    /// Adds a file with the libraries it needs, or a directory unchanged. A program loses its debug
    /// information: the guest spends seconds on a boot with it.
    fn program(&mut self, source: &Path, dest: &Path) -> Result<(), NodeError> {
        let mut source = source.canonicalize().map_err(|_| NodeError::NoSuchFile(source.into()))?;
        if source.is_file() {
            for library in shared_libraries::of_program(&source)? {
                let target = library.canonicalize().map_err(NodeError::io(&library))?;
                self.links.insert(library, target);
            }
            if is_program(&source)? {
                source = self.stripped(&source)?;
            }
        }
        self.links.insert(dest.into(), source);
        Ok(())
    }

    /// Path of a copy without debug information.
    fn stripped(&self, program: &Path) -> Result<PathBuf, NodeError> {
        let copy = self.root.with_extension(format!("stripped.{}", self.links.len()));
        process::output_of(
            Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(program),
        )?;
        Ok(copy)
    }

    fn pack(&self, archive: &Path) -> Result<PathBuf, NodeError> {
        for (guest, host) in &self.links {
            let link = self.root.join(guest.strip_prefix("/").unwrap_or(guest));
            make_parent(&link)?;
            symlink(host, &link).map_err(NodeError::io(&link))?;
        }
        let list_path = archive.with_extension("list");
        let list = process::output_of(
            Command::new("find").args(["-L", ".", "-print0"]).current_dir(&self.root),
        )?;
        fs::write(&list_path, list).map_err(NodeError::io(&list_path))?;
        let mut cpio = Command::new("cpio");
        cpio.args([
            "--quiet",
            "--null",
            "--create",
            "--dereference",
            "--format=newc",
            "--owner=0:0",
        ]);
        cpio.current_dir(&self.root)
            .stdin(File::open(&list_path).map_err(NodeError::io(&list_path))?);
        cpio.stdout(File::create(archive).map_err(NodeError::io(archive))?)
            .stderr(Stdio::inherit());
        process::run(&mut cpio)?;
        Ok(archive.into())
    }
}

/// Whether the file is an executable in the format ELF.
fn is_program(file: &Path) -> Result<bool, NodeError> {
    let mut magic = [0; 4];
    let mut opened = File::open(file).map_err(NodeError::io(file))?;
    let mode = opened.metadata().map_err(NodeError::io(file))?.permissions().mode();
    Ok(mode & 0o111 != 0 && opened.read_exact(&mut magic).is_ok() && magic == *b"\x7fELF")
}

fn make_parent(path: &Path) -> Result<(), NodeError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(NodeError::io(parent))
}
