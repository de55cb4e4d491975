//! Freezes containers: by the `freezer` hierarchy of cgroup v1, or by `cgroup.freeze` of v2.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testkit::Cgroup;

const V1: &str = "/sys/fs/cgroup/freezer";
const TIMEOUT: Duration = Duration::from_secs(10);

/// The containers that are frozen as one. Thawed and, on v1, removed on drop.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// The cgroups that are frozen.
    directories: Vec<PathBuf>,
    is_v1: bool,
}

/// The freezer's cgroup of this process, relative to its root.
fn own() -> String {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let line = text.lines().find_map(|line| line.split_once(":freezer:"));
    line.map_or_else(String::new, |(_, path)| path.trim_start_matches('/').to_owned())
}

impl Group {
    pub(crate) fn new(name: &'static str) -> Self {
        let is_v1 = Path::new(V1).exists();
        let mut group = Self { name, directories: Vec::new(), is_v1 };
        if is_v1 {
            // Below that of the bench: who freezes the bench freezes its pods.
            let name = format!("cpuwarden-verdict-{}-{name}", std::process::id());
            let directory = Path::new(V1).join(own()).join(name);
            std::fs::create_dir(&directory).unwrap();
            group.directories.push(directory);
        }
        group
    }

    /// Adds a container. Its process must also enter these cgroups.
    pub(crate) fn add(&mut self, container: &Cgroup) -> Vec<PathBuf> {
        if self.is_v1 {
            return self.directories.iter().map(|one| one.join("cgroup.procs")).collect();
        }
        self.directories.push(container.dir("cpu"));
        Vec::new()
    }

    pub(crate) fn freeze(&self) {
        let deadline = Instant::now() + TIMEOUT;
        self.set(true);
        while !self.directories.iter().all(|one| self.is_frozen(one)) {
            assert!(Instant::now() < deadline, "{} does not freeze", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn thaw(&self) {
        self.set(false);
    }

    fn set(&self, freeze: bool) {
        let (file, text) = match (self.is_v1, freeze) {
            (true, true) => ("freezer.state", "FROZEN"),
            (true, false) => ("freezer.state", "THAWED"),
            (false, true) => ("cgroup.freeze", "1"),
            (false, false) => ("cgroup.freeze", "0"),
        };
        for directory in &self.directories {
            if let Err(error) = std::fs::write(directory.join(file), text) {
                // Must not panic, since this may run during a panic.
                eprintln!("{}: {error}", directory.display());
            }
        }
    }

    fn is_frozen(&self, directory: &Path) -> bool {
        let (file, text) =
            if self.is_v1 { ("freezer.state", "FROZEN") } else { ("cgroup.events", "frozen 1") };
        std::fs::read_to_string(directory.join(file)).is_ok_and(|state| state.contains(text))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.thaw();
        if self.is_v1 {
            for directory in &self.directories {
                // With all processes in it: a frozen one does not die.
                if let Err(error) = testkit::remove(directory) {
                    eprintln!("{} is left behind: {error}", directory.display());
                }
            }
        }
    }
}
