//! One process: its files in `/proc`, and the files that are visible to it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cgroupfs::bounded;
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// A directory in `/proc`.
#[derive(Debug)]
pub(crate) struct Process {
    directory: PathBuf,
    pid: u32,
}

/// Number of tasks whose names are checked: a pool's threads start with the program.
const TASKS: usize = 5;

impl Process {
    pub(crate) fn new(proc_root: &Path, pid: u32) -> Self {
        Self { directory: proc_root.join(pid.to_string()), pid }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Link to the executable.
    pub(crate) fn exe(&self) -> PathBuf {
        self.directory.join("exe")
    }

    /// Path of the executable in the process's own view of the file system.
    pub(crate) fn exe_path(&self) -> PathBuf {
        let target = fs::read_link(self.exe()).unwrap_or_default();
        // Suffix of the link if the file was replaced.
        match target.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
            Some(path) => Path::new(std::ffi::OsStr::from_bytes(path)).to_owned(),
            None => target,
        }
    }

    /// The initial environment, up to a limit.
    pub(crate) fn environ(&self) -> Vec<u8> {
        self.own("environ", bounded::ENVIRON_BYTES)
    }

    /// The auxiliary vector, which the kernel passed to the program.
    pub(crate) fn auxv(&self) -> Vec<u8> {
        self.own("auxv", bounded::FILE_BYTES)
    }

    /// File with the memory of the process.
    pub(crate) fn mem(&self) -> PathBuf {
        self.directory.join("mem")
    }

    /// Time at which the process started, clock ticks since boot: with the pid, its identity.
    pub(crate) fn started(&self) -> Option<u64> {
        let stat = self.own("stat", bounded::FILE_BYTES);
        // The name may contain anything. The 22nd field is the 20th after it.
        let end = stat.iter().rposition(|&byte| byte == b')')?;
        let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        fields.split_whitespace().nth(19)?.parse().ok()
    }

    /// Pid in the process's own PID namespace.
    pub(crate) fn own_pid(&self) -> Option<u32> {
        let status = self.own("status", bounded::FILE_BYTES);
        let text = String::from_utf8_lossy(&status);
        let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace().next_back()?.parse().ok()
    }

    /// The beginning of a file in its `/proc` directory; empty if it cannot be read.
    fn own(&self, name: &str, most: usize) -> Vec<u8> {
        bounded::read(&self.directory.join(name), most).unwrap_or_default()
    }

    /// The command line without the program name.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let line = self.own("cmdline", bounded::CMDLINE_BYTES);
        let words = bounded::strings(&line, bounded::CMDLINE_BYTES).skip(1);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// The first accepted result of `choose` over the mapped files, with paths in the process's own
    /// view of the file system.
    pub(crate) fn mapped<T>(&self, choose: impl Fn(&Path) -> Option<T>) -> Option<T> {
        let maps = self.own("maps", bounded::MAPS_BYTES);
        // Only code mappings: a library's first mapping may be anything, but one of them is
        // executable.
        let code =
            maps.split(|&byte| byte == b'\n').filter(|line| line.get(..64).is_some_and(is_code));
        code.filter_map(|line| line.get(line.iter().position(|&byte| byte == b'/')?..))
            .find_map(|path| choose(Path::new(std::ffi::OsStr::from_bytes(path))))
    }

    /// Whether one of its first threads has this name.
    pub(crate) fn has_thread(&self, name: &[u8]) -> bool {
        let tasks = self.directory.join("task");
        let read = |task| bounded::read(&tasks.join(task).join("comm"), bounded::FILE_BYTES);
        bounded::names(&tasks).take(TASKS).any(|task| read(task).is_ok_and(|comm| comm == name))
    }

    /// The first child; `None` without one, or if the kernel does not list children
    /// (CONFIG_PROC_CHILDREN).
    pub(crate) fn first_child(&self) -> Option<u32> {
        let children = self.own(&format!("task/{}/children", self.pid), bounded::FILE_BYTES);
        std::str::from_utf8(&children).ok()?.split_whitespace().next()?.parse().ok()
    }

    /// Opens a regular file at this path in the process's view. Links are resolved within the
    /// process's root (openat2, Linux 5.6). Pipes and devices, where opening has side effects, are
    /// never opened.
    pub(crate) fn open(&self, path: &Path) -> Option<File> {
        let found = self.find(path).ok()?;
        let is_file = found.metadata().is_ok_and(|metadata| metadata.is_file());
        is_file
            .then(|| bounded::open(format!("/proc/self/fd/{}", found.as_raw_fd()).as_ref()).ok())?
    }

    /// Finds the file or directory at this path, without opening it.
    fn find(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.directory.join("root"), flags, Mode::empty())?;
        let inside = path.strip_prefix("/").unwrap_or(path);
        let found =
            rustix::fs::openat2(&root, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        Ok(File::from(found))
    }

    /// Names in the directory at this path in the process's view, a bounded number.
    ///
    /// # Errors
    /// The operating system's, if the directory cannot be found.
    pub(crate) fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let found = self.find(path)?;
        Ok(bounded::names(format!("/proc/self/fd/{}", found.as_raw_fd()).as_ref()).collect())
    }

    /// The beginning of such a file.
    pub(crate) fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.read_most(path, bounded::FILE_BYTES)
    }

    /// The first `most` bytes of such a file.
    pub(crate) fn read_most(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(most as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// `7f4ad4a26000-7f4ad4b7b000 r-xp …`
fn is_code(line: &[u8]) -> bool {
    line.split(|&byte| byte == b' ').nth(1).is_some_and(|rights| rights.contains(&b'x'))
}
