//! The demo's own root cgroup in every relevant hierarchy, with guaranteed removal.
//!
//! Changes nothing outside this cgroup, with one exception: on v2 it enables a controller that the
//! root's `cgroup.subtree_control` lacks, and disables it at the end. A lock on the directory
//! distinguishes a running demo from the leftovers of a killed one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use cgroupfs::{Hierarchy, control, subdirectories};
use kernel_text::CgroupVersion;
use rustix::fs::{FlockOperation, flock};
use testkit::{Cgroup, remove, try_hierarchy};

const TOP_PREFIX: &str = "cpuwarden-demo-";

/// The demo's root cgroup, removed on drop with all processes in it.
#[derive(Debug)]
pub(super) struct Tree {
    top: Cgroup,
    hierarchy: &'static Hierarchy,
    /// v2: original content of the root's `cgroup.subtree_control`.
    handed_down: Option<String>,
    lock: Option<File>,
}

impl Tree {
    /// Removes the leftovers of earlier demos and creates a root cgroup named after this process.
    ///
    /// # Errors
    /// No hierarchy, or it is not writable.
    pub(super) fn new() -> anyhow::Result<Self> {
        let hierarchy = try_hierarchy()?;
        remove_leftovers(hierarchy);
        let handed_down = match hierarchy.version {
            CgroupVersion::V1 => None,
            CgroupVersion::V2 => fs::read_to_string(subtree_control(hierarchy)).ok(),
        };
        // An existing cgroup is not adopted.
        let top = Cgroup::try_create(format!("{TOP_PREFIX}{}", std::process::id()))?;
        // From here on there is something to remove.
        let mut tree = Self { top, hierarchy, handed_down, lock: None };
        let lock = lock(&tree.top.dir("cpu"))?;
        tree.lock = Some(lock.context("another process has locked the cgroup")?);
        Ok(tree)
    }

    /// The root cgroup.
    pub(super) fn top(&self) -> &Cgroup {
        &self.top
    }

    /// The hierarchies that contain it.
    pub(super) fn hierarchy(&self) -> &'static Hierarchy {
        self.hierarchy
    }

    /// Creates a cgroup below the root cgroup, with its parents and the controllers that the agent
    /// reads.
    ///
    /// # Errors
    /// The kernel rejects it, or the cpu controller is not available.
    pub(super) fn create(&self, path: &str) -> anyhow::Result<Cgroup> {
        let mut cgroup = self.top.clone();
        for name in path.split('/') {
            cgroup = cgroup.existing_child(name);
            if !cgroup.dir("cpu").exists() {
                cgroup = Cgroup::try_create(cgroup.path())?;
            }
        }
        Ok(cgroup)
    }

    /// Disables the controllers that were enabled at the root.
    fn disable_again(&self) {
        let Some(before) = &self.handed_down else { return };
        let path = subtree_control(self.hierarchy);
        let now = fs::read_to_string(&path).unwrap_or_default();
        let was_there = |name: &str| before.split_whitespace().any(|before| before == name);
        for name in now.split_whitespace().filter(|name| !was_there(name)) {
            // Rejected (EBUSY) while another process uses the controller, which must then stay
            // enabled.
            let _ = control::write(&path, &format!("-{name}"));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for directory in self.top.dirs() {
            if let Err(error) = remove(&directory) {
                // Must not panic, since this may run during a panic.
                tracing::error!(
                    "cannot remove {}: {error}; the next demo removes it",
                    directory.display()
                );
            }
        }
        self.disable_again();
    }
}

fn subtree_control(hierarchy: &Hierarchy) -> PathBuf {
    hierarchy.cpu.join("cgroup.subtree_control")
}

/// Locks a demo's directory; `None` if its demo is running. The lock ends with its process, even if
/// that is killed.
fn lock(directory: &Path) -> anyhow::Result<Option<File>> {
    let file =
        File::open(directory).with_context(|| format!("cannot open {}", directory.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", directory.display())),
    }
}

fn remove_leftovers(hierarchy: &Hierarchy) {
    for mount in Cgroup::existing("").dirs() {
        let found = subdirectories(&mount).unwrap_or_default();
        for name in found.into_iter().map(|child| child.name).filter(|name| is_top(name)) {
            let locked = hierarchy.cpu.join(&name);
            let is_left = !locked.exists() || lock(&locked).is_ok_and(|lock| lock.is_some());
            if is_left {
                // A leftover that cannot be removed does no harm.
                let _ = remove(&mount.join(&name));
            }
        }
    }
}

fn is_top(name: &str) -> bool {
    name.strip_prefix(TOP_PREFIX).is_some_and(|pid| pid.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that is killed even if the test fails.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a process in a container's cgroup of the tree.
    fn inhabit(tree: &Tree) -> Sleeper {
        let cgroup = tree.create("kubepods/burstable/pod1/c").unwrap();
        let sleeper =
            Sleeper(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap());
        cgroup.add_process(sleeper.0.id());
        sleeper
    }

    /// A single test: the root cgroup is named after the process, so two tests at once would
    /// collide.
    #[test]
    fn cgroups_are_removed_after_a_panic_and_after_a_kill() {
        let mut left = Vec::new();
        let mut sleepers = Vec::new();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let tree = Tree::new().unwrap();
            left = tree.top.dirs();
            sleepers.push(inhabit(&tree));
            assert!(
                left.iter().all(|directory| directory.join("kubepods/burstable/pod1/c").is_dir()),
                "{left:?}"
            );
            panic!("on purpose");
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert!(left.iter().all(|directory| !directory.exists()), "{left:?}");

        let mut killed = Tree::new().unwrap();
        sleepers.push(inhabit(&killed));
        remove_leftovers(killed.hierarchy);
        assert!(
            left.iter().all(|directory| directory.exists()),
            "the cgroups of a demo that lives were taken"
        );
        // Releases the lock, as the kernel does for a killed process.
        killed.lock = None;
        std::mem::forget(killed);
        let next = Tree::new().unwrap();
        assert!(next.top.dirs().iter().all(|directory| !directory.join("kubepods").exists()));
    }
}
