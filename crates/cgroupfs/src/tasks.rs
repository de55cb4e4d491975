//! Processes of a cgroup and their threads, read into reused buffers: no allocations once the
//! buffers have grown.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel_text::{TaskSchedstat, USER_TICK_NS};
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, openat};

use crate::bounded::{self, ENTRIES, FILE_BYTES, PROCS_BYTES};
use crate::is_vanished;

/// Size of the buffer for directory entries, bytes.
const ENTRIES_BYTES: usize = 8192;

/// State and times of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Thread id.
    pub tid: u32,
    /// Run time and run-queue delay (`schedstat`).
    pub schedstat: TaskSchedstat,
    /// Whether the thread is in state R, running or ready to run (`stat`).
    pub runnable: bool,
    /// Time of its start since boot, rounded down to 10 ms (`stat`); `None` if the kernel shows none.
    pub started: Option<Duration>,
}

/// A thread: its process id and its own id.
pub type ThreadId = (u32, u32);

/// Reads processes and threads from one `/proc`.
#[derive(Debug)]
pub struct TaskReader {
    proc_root: String,
    path: String,
    text: Vec<u8>,
    pids: Vec<u32>,
    entries: Vec<MaybeUninit<u8>>,
}

impl TaskReader {
    /// A reader of this `/proc`. A root that is not UTF-8 is treated as having no processes.
    #[must_use]
    pub fn new(proc_root: &Path) -> Self {
        Self {
            proc_root: proc_root.to_str().unwrap_or_default().to_owned(),
            path: String::with_capacity(256),
            text: vec![0; 4096],
            pids: Vec::new(),
            entries: vec![MaybeUninit::uninit(); ENTRIES_BYTES],
        }
    }

    /// Appends the threads of the cgroup and its descendants, up to [`ENTRIES`] threads. Skips what
    /// ends meanwhile or may not be read. Also skips the pid 0, which the kernel shows for a
    /// process in a PID namespace that is not visible from this one.
    ///
    /// # Errors
    /// Fails if something exists but could not be read, such as without a free descriptor: the list
    /// is incomplete.
    pub fn threads(&mut self, cgroup: &Path, into: &mut Vec<ThreadId>) -> io::Result<()> {
        // Stays empty, and so allocates nothing, without nested cgroups.
        let mut unread = Vec::new();
        self.threads_of(cgroup, &mut unread, into)?;
        // At most as many cgroups as threads: a container may nest cgroups without processes.
        for _ in 1..ENTRIES {
            let Some(cgroup) = unread.pop() else { break };
            self.threads_of(&cgroup, &mut unread, into)?;
        }
        Ok(())
    }

    /// Appends the threads of one cgroup to `into` and its child cgroups to `nested`.
    fn threads_of(
        &mut self,
        cgroup: &Path,
        nested: &mut Vec<PathBuf>,
        into: &mut Vec<ThreadId>,
    ) -> io::Result<()> {
        self.read_pids(cgroup)?;
        for at in 0..self.pids.len() {
            if into.len() >= ENTRIES {
                return Ok(());
            }
            self.read_tids(self.pids[at], into)?;
        }
        self.nested(cgroup, nested)
    }

    /// Reads one thread; `None` if it is gone or may not be read, or the kernel lacks
    /// `CONFIG_SCHED_INFO`. The state is read first: a wait of a thread that sleeps then has ended
    /// before the delay is read.
    ///
    /// # Errors
    /// Fails if the thread exists and could not be read.
    pub fn task(&mut self, (pid, tid): ThreadId) -> io::Result<Option<Task>> {
        let Some(stat) = self.read_file(format_args!("{pid}/task/{tid}/stat"))? else {
            return Ok(None);
        };
        let (runnable, started) = state_and_start(stat);
        let text = self.read_file(format_args!("{pid}/task/{tid}/schedstat"))?;
        let schedstat = text.and_then(|text| TaskSchedstat::parse(text).ok());
        Ok(schedstat.map(|schedstat| Task { tid, schedstat, runnable, started }))
    }

    fn read_file(&mut self, below: std::fmt::Arguments<'_>) -> io::Result<Option<&[u8]>> {
        self.path.clear();
        write!(self.path, "{}/{below}", self.proc_root).map_err(io::Error::other)?;
        read(&self.path, &mut self.text, FILE_BYTES)
    }

    fn read_pids(&mut self, cgroup: &Path) -> io::Result<()> {
        self.pids.clear();
        self.path.clear();
        let Some(cgroup) = cgroup.to_str() else { return Ok(()) };
        self.path.push_str(cgroup);
        self.path.push_str("/cgroup.procs");
        let text = read(&self.path, &mut self.text, PROCS_BYTES)?.unwrap_or_default();
        self.pids.extend(numbers(text).filter(|&pid| pid != 0));
        Ok(())
    }

    fn read_tids(&mut self, pid: u32, into: &mut Vec<ThreadId>) -> io::Result<()> {
        self.path.clear();
        write!(self.path, "{}/{pid}/task", self.proc_root).map_err(io::Error::other)?;
        each_entry(&self.path, &mut self.entries, |name, _| {
            into.extend(numbers(name).map(|tid| (pid, tid)));
            into.len() < ENTRIES
        })
    }

    fn nested(&mut self, cgroup: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
        let Some(path) = cgroup.to_str() else { return Ok(()) };
        each_entry(path, &mut self.entries, |name, kind| {
            if kind == FileType::Directory && !matches!(name, b"." | b"..") {
                into.extend(std::str::from_utf8(name).ok().map(|name| cgroup.join(name)));
            }
            into.len() < ENTRIES
        })
    }
}

/// State and start of a thread, from `PID (NAME) STATE …`, where the name may contain any byte.
fn state_and_start(stat: &[u8]) -> (bool, Option<Duration>) {
    let name = stat.iter().rposition(|&byte| byte == b')');
    let mut fields =
        name.and_then(|end| stat.get(end + 2..)).unwrap_or_default().split(|&byte| byte == b' ');
    let is_runnable = fields.next() == Some(b"R");
    // Fields 3 (state) and 22 (start, in ticks since boot).
    let ticks = fields.nth(18).and_then(|ticks| kernel_text::parse_u64("stat", ticks).ok());
    (is_runnable, ticks.map(|ticks| Duration::from_nanos(ticks.saturating_mul(USER_TICK_NS))))
}

/// Whether the error is expected: the file is gone, may not be read, or is the `cgroup.procs` of a
/// threaded cgroup, whose processes are listed in its parent.
fn is_unreadable(error: &io::Error) -> bool {
    is_vanished(error)
        || matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

/// Reads the file up to a limit, into a buffer that grows with it; `None` if the file is gone or
/// may not be read.
fn read<'a>(path: &str, text: &'a mut Vec<u8>, most: usize) -> io::Result<Option<&'a [u8]>> {
    match read_length(path, text, most) {
        Ok(length) => Ok(Some(&text[..length])),
        Err(error) if is_unreadable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_length(path: &str, text: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let mut file = bounded::open(Path::new(path))?;
    let mut length = 0;
    loop {
        let end = text.len().min(most);
        match file.read(&mut text[length..end])? {
            0 => return Ok(length),
            more => length += more,
        }
        if length == text.len() {
            text.resize((length * 2).min(most.max(length)), 0);
        }
    }
}

/// Visits the entries of a directory until one returns false; no entry if the directory is gone or
/// may not be listed.
fn each_entry(
    path: &str,
    buffer: &mut [MaybeUninit<u8>],
    visit: impl FnMut(&[u8], FileType) -> bool,
) -> io::Result<()> {
    match list(path, buffer, visit) {
        Err(error) if !is_unreadable(&error) => Err(error),
        _ => Ok(()),
    }
}

fn list(
    path: &str,
    buffer: &mut [MaybeUninit<u8>],
    mut visit: impl FnMut(&[u8], FileType) -> bool,
) -> io::Result<()> {
    let directory =
        openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut entries = RawDir::new(directory, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !visit(entry.file_name().to_bytes(), entry.file_type()) {
            break;
        }
    }
    Ok(())
}

fn numbers(text: &[u8]) -> impl Iterator<Item = u32> {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok())
}

/// The first process of a cgroup; `None` if the cgroup is empty, gone, or in an invisible PID
/// namespace.
#[must_use]
pub fn first_pid(cgroup: &Path) -> Option<u32> {
    let text = bounded::read(&cgroup.join("cgroup.procs"), FILE_BYTES).ok()?;
    numbers(&text).find(|&pid| pid != 0)
}

/// Whether there is a process in the cgroup itself, visible or not. False if the cgroup is gone.
#[must_use]
pub fn has_processes(cgroup: &Path) -> bool {
    bounded::read(&cgroup.join("cgroup.procs"), 1).is_ok_and(|text| !text.is_empty())
}

/// The processes of a cgroup, without those of its children; empty if it cannot be read. Skips
/// processes of a PID namespace that is not visible from this one.
#[must_use]
pub fn pids(cgroup: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != 0).collect()
}

/// Maximum number of cgroups that [`is_populated`] checks below one on v1.
const POPULATED_WITHIN: usize = 256;

/// Whether there are processes in the cgroup or below it: from `cgroup.events` on v2; on v1 by
/// checking it and at most 256 cgroups below it.
#[must_use]
pub fn is_populated(cgroup: &Path) -> bool {
    if has_processes(cgroup) {
        return true;
    }
    match std::fs::read_to_string(cgroup.join("cgroup.events")) {
        Ok(events) => events.lines().any(|line| line == "populated 1"),
        Err(_) => {
            crate::descendants(cgroup, POPULATED_WITHIN).iter().any(|below| has_processes(below))
        }
    }
}

/// Name of a process from `/proc/PID/comm`; `None` if the process is gone.
#[must_use]
pub fn process_name(proc_root: &Path, pid: u32) -> Option<String> {
    let name = bounded::read(&proc_root.join(pid.to_string()).join("comm"), FILE_BYTES).ok()?;
    Some(String::from_utf8(name).ok()?.trim_end().to_owned())
}

/// Whether the cgroup contains exactly one process, which runs this program. Compares the
/// executable if it is readable (it needs `CAP_SYS_PTRACE` for other users' processes), else the
/// name, which any process may choose.
#[must_use]
pub fn runs_only(cgroup: &Path, proc_root: &Path, program: &str) -> bool {
    let Ok(text) = std::fs::read(cgroup.join("cgroup.procs")) else { return false };
    let mut pids = numbers(&text).filter(|&pid| pid != 0);
    let (Some(pid), None) = (pids.next(), pids.next()) else { return false };
    match std::fs::read_link(proc_root.join(pid.to_string()).join("exe")) {
        Ok(executable) => executable.file_name().is_some_and(|name| name == program),
        Err(_) => process_name(proc_root, pid).as_deref() == Some(program),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cgroup_is_populated_by_processes_below_it() {
        let root = tempfile::tempdir().unwrap();
        let nested = root.path().join("nested/deep");
        fs::create_dir_all(&nested).unwrap();
        assert!(!is_populated(root.path()));
        fs::write(nested.join("cgroup.procs"), "1\n").unwrap();
        assert!(is_populated(root.path()));
        fs::write(root.path().join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(!is_populated(root.path()), "the kernel's own word");
        fs::write(root.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert!(is_populated(root.path()));
    }

    #[test]
    fn this_thread_is_found_running_under_any_name() {
        let root = tempfile::tempdir().unwrap();
        let nested = root.path().join("nested");
        fs::create_dir(&nested).unwrap();
        let pid = std::process::id();
        fs::write(nested.join("cgroup.procs"), format!("0\n{pid}\n")).unwrap();
        let mut reader = TaskReader::new(Path::new("/proc"));
        let mut threads = Vec::new();
        reader.threads(root.path(), &mut threads).unwrap();
        let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(threads.contains(&(pid, tid)), "{threads:?}");
        let task = reader.task((pid, tid)).unwrap().unwrap();
        assert!(task.runnable && task.tid == tid, "{task:?}");
        let booted = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let age = u64::try_from(booted.tv_sec).unwrap() - task.started.unwrap().as_secs();
        assert!(age < 3600, "{task:?} at {booted:?}");
    }

    #[test]
    fn vanished_processes_are_none_and_pid_zero_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(TaskReader::new(root.path()).task((1, 1)).unwrap(), None);
        fs::write(root.path().join("cgroup.procs"), "0\n0\n42\n").unwrap();
        assert_eq!(first_pid(root.path()), Some(42));
        assert!(has_processes(root.path()) && !has_processes(&root.path().join("gone")));
        let mut threads = Vec::new();
        TaskReader::new(root.path()).threads(root.path(), &mut threads).unwrap();
        assert_eq!(threads, []);
    }

    #[test]
    fn an_unreadable_file_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("42/task");
        fs::create_dir_all(task.join("43")).unwrap();
        std::os::unix::fs::symlink("stat", task.join("43/stat")).unwrap();
        let mut reader = TaskReader::new(root.path());
        assert!(reader.task((42, 43)).is_err());
        fs::write(root.path().join("cgroup.procs"), "42\n").unwrap();
        let mut threads = Vec::new();
        reader.threads(root.path(), &mut threads).unwrap();
        assert_eq!(threads, [(42, 43)]);
        fs::remove_dir_all(&task).unwrap();
        std::os::unix::fs::symlink("task", &task).unwrap();
        assert!(reader.threads(root.path(), &mut threads).is_err(), "a list of threads");
        fs::remove_file(root.path().join("cgroup.procs")).unwrap();
        std::os::unix::fs::symlink("cgroup.procs", root.path().join("cgroup.procs")).unwrap();
        assert!(reader.threads(root.path(), &mut threads).is_err(), "a list of processes");
    }

    #[test]
    fn the_number_of_listed_threads_and_cgroups_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        let pids: String = (1..=40).map(|pid| format!("{pid}\n")).collect();
        for pid in 1..=40 {
            for tid in 0..40 {
                fs::create_dir_all(root.path().join(format!("{pid}/task/{}", pid * 100 + tid)))
                    .unwrap();
            }
        }
        let cgroup = root.path().join("cgroup");
        fs::create_dir_all(cgroup.join("n/n/n/n")).unwrap();
        fs::write(cgroup.join("n/n/cgroup.procs"), pids).unwrap();
        let mut threads = Vec::new();
        TaskReader::new(root.path()).threads(&cgroup, &mut threads).unwrap();
        assert_eq!(threads.len(), ENTRIES);
    }

    #[test]
    fn a_long_list_of_processes_is_read_whole() {
        let root = tempfile::tempdir().unwrap();
        let text: String = (1..=3000).map(|pid| format!("{pid}\n")).collect();
        fs::write(root.path().join("cgroup.procs"), text).unwrap();
        let mut reader = TaskReader::new(root.path());
        reader.read_pids(root.path()).unwrap();
        assert!(reader.pids.iter().copied().eq(1..=3000));
    }
}
