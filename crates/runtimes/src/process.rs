//! One process: its files in `/proc`, and the files that it sees.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cgroupfs::bounded;
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// A directory of `/proc`.
#[derive(Debug)]
pub(crate) struct Process {
    directory: PathBuf,
    pid: u32,
}

/// Tasks whose names are looked at: a pool's threads start with the program.
const TASKS: usize = 5;

impl Process {
    pub(crate) fn new(proc_root: &Path, pid: u32) -> Self {
        Self { directory: proc_root.join(pid.to_string()), pid }
    }

    /// The link to its executable.
    pub(crate) fn exe(&self) -> PathBuf {
        self.directory.join("exe")
    }

    /// Where it found its executable, as it sees the file system.
    pub(crate) fn exe_path(&self) -> PathBuf {
        let target = fs::read_link(self.exe()).unwrap_or_default();
        // The link of a replaced file ends so.
        match target.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
            Some(path) => Path::new(std::ffi::OsStr::from_bytes(path)).to_owned(),
            None => target,
        }
    }

    /// Its initial environment, as far as it is read.
    pub(crate) fn environ(&self) -> Vec<u8> {
        self.own("environ", bounded::ENVIRON_BYTES)
    }

    /// The start of a file of its own directory; empty where it cannot be read.
    fn own(&self, name: &str, most: usize) -> Vec<u8> {
        bounded::read(&self.directory.join(name), most).unwrap_or_default()
    }

    /// Its command line, after the name of the program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let line = self.own("cmdline", bounded::CMDLINE_BYTES);
        let words = bounded::strings(&line, bounded::CMDLINE_BYTES).skip(1);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// The path of the first mapped file that `choose` accepts, as the process sees the file system.
    pub(crate) fn mapped<T>(&self, choose: impl Fn(&Path) -> Option<T>) -> Option<T> {
        let maps = self.own("maps", bounded::MAPS_BYTES);
        // Only code: a library's first mapping may be anything, one of them is executable.
        let code = maps.split(|&byte| byte == b'\n').filter(|line| line.get(..64).is_some_and(is_code));
        code.filter_map(|line| line.get(line.iter().position(|&byte| byte == b'/')?..))
            .find_map(|path| choose(Path::new(std::ffi::OsStr::from_bytes(path))))
    }

    /// Has one of its first threads this name?
    pub(crate) fn has_thread(&self, name: &[u8]) -> bool {
        let tasks = self.directory.join("task");
        let read = |task| bounded::read(&tasks.join(task).join("comm"), bounded::FILE_BYTES);
        bounded::names(&tasks).take(TASKS).any(|task| read(task).is_ok_and(|comm| comm == name))
    }

    /// Its first child; `None` where it has none, and on a kernel that does not tell (CONFIG_PROC_CHILDREN).
    pub(crate) fn first_child(&self) -> Option<u32> {
        let children = self.own(&format!("task/{}/children", self.pid), bounded::FILE_BYTES);
        std::str::from_utf8(&children).ok()?.split_whitespace().next()?.parse().ok()
    }

    /// A regular file that the process sees at this path. Its links lead nowhere but into its own root (openat2, Linux
    /// 5.6), and nothing that acts when it is opened, a pipe or a device, is.
    pub(crate) fn open(&self, path: &Path) -> Option<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.directory.join("root"), flags, Mode::empty()).ok()?;
        let inside = path.strip_prefix("/").unwrap_or(path);
        let found = rustix::fs::openat2(&root, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        let found = File::from(found);
        let is_file = found.metadata().is_ok_and(|metadata| metadata.is_file());
        is_file.then(|| bounded::open(format!("/proc/self/fd/{}", found.as_raw_fd()).as_ref()).ok())?
    }

    /// The start of such a file.
    pub(crate) fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        self.open(path)?.take(bounded::FILE_BYTES as u64).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

/// `7f4ad4a26000-7f4ad4b7b000 r-xp …`
fn is_code(line: &[u8]) -> bool {
    line.split(|&byte| byte == b' ').nth(1).is_some_and(|rights| rights.contains(&b'x'))
}
