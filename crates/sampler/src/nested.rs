//! Throttling by quotas of cgroups below a container, which its own processes set (KEP-5474).
//!
//! The kernel counts it on the cgroup with the quota alone. They are read with the container's slow
//! files, and never watched: a container may create thousands.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use cgroupfs::{KeptFile, descendants};
use kernel_text::CpuStat;

use crate::counter::{Context, Counter, Unit};

/// Maximum number of cgroups read below one container, parents first.
const MOST: usize = 64;
/// Links of a directory without subdirectories.
const LEAF_LINKS: u64 = 2;

/// Cgroups below a container that have, or had, a quota.
#[derive(Debug, Default)]
pub(crate) struct Nested {
    throttled: HashMap<u64, Counter>,
    /// Whether the last read found all cgroups.
    is_complete: bool,
}

/// Reads the cgroups below `directory` into `nested`, which stays empty without such cgroups, and
/// returns the increment of their throttled time in nanoseconds. `None` if none has a quota.
/// `last`: time of the last such read. What began since counts from zero.
pub(crate) fn read(
    nested: &mut Option<Box<Nested>>,
    directory: &Path,
    last: Option<Instant>,
    text: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Option<u64> {
    let links = fs::metadata(directory).map_or(LEAF_LINKS, |metadata| metadata.nlink());
    if links <= LEAF_LINKS {
        *nested = None;
        return None;
    }
    let was_complete = nested.as_ref().is_none_or(|nested| nested.is_complete);
    context.created_after = last.filter(|_| was_complete).or(context.created_after);
    let mut before = nested.take().unwrap_or_default().throttled;
    let paths = descendants(directory, MOST);
    let mut now = Nested { throttled: HashMap::new(), is_complete: paths.len() < MOST };
    let mut total = None;
    for path in paths {
        let Some((inode, throttled_ns)) = read_one(&path, text) else { continue };
        let mut counter = before.remove(&inode).unwrap_or_default();
        let gained = counter.advance(throttled_ns, Unit::Throttle, context);
        *total.get_or_insert(0) += gained;
        now.throttled.insert(inode, counter);
    }
    *nested = Some(Box::new(now));
    total
}

/// Inode and throttled time of a cgroup that has, or had, a quota.
fn read_one(path: &Path, text: &mut Vec<u8>) -> Option<(u64, u64)> {
    let file = KeptFile::open_path(&path.join("cpu.stat")).ok()??;
    let stat = CpuStat::parse(file.read(text).ok()?).ok()?;
    let has_quota = stat.nr_periods > Some(0);
    let inode = cgroupfs::inode(path).ok()?;
    Some((inode, stat.throttled_ns.filter(|_| has_quota)?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Writes the file of a cgroup with this throttled time, in microseconds.
    fn set(path: &Path, periods: u64, usec: u64) {
        fs::create_dir_all(path).unwrap();
        let text = format!("nr_periods {periods}\nnr_throttled 1\nthrottled_usec {usec}\n");
        fs::write(path.join("cpu.stat"), text).unwrap();
    }

    /// Reads once per second, from the container's second read on.
    struct Reader {
        nested: Option<Box<Nested>>,
        now: Instant,
        last: Option<Instant>,
    }

    impl Reader {
        fn new() -> Self {
            Self { nested: None, now: Instant::now(), last: None }
        }

        fn read(&mut self, directory: &Path) -> Option<u64> {
            self.now += Duration::from_secs(1);
            let (now, mut implausible) = (self.now, 0);
            let mut context =
                Context { now, created_after: None, cpus: 4, implausible: &mut implausible };
            let last = self.last.replace(now);
            read(&mut self.nested, directory, last, &mut Vec::new(), &mut context)
        }
    }

    #[test]
    fn throttling_by_quotas_of_all_levels_counts_from_its_beginning() {
        let root = tempfile::tempdir().unwrap();
        let container = root.path();
        let mut reader = Reader::new();
        assert_eq!(reader.read(container), None);
        set(&container.join("free"), 0, 0);
        assert_eq!(reader.read(container), None, "without a quota");
        set(&container.join("a"), 5, 700);
        set(&container.join("a/b"), 5, 40);
        assert_eq!(reader.read(container), Some(740_000), "created since the last read");
        set(&container.join("a/b"), 6, 50);
        assert_eq!(reader.read(container), Some(10_000));
        fs::remove_dir_all(container.join("a/b")).unwrap();
        assert_eq!(reader.read(container), Some(0));
        assert_eq!(reader.nested.unwrap().throttled.len(), 1);
    }

    #[test]
    fn what_was_there_at_the_first_read_is_the_base() {
        let root = tempfile::tempdir().unwrap();
        set(&root.path().join("a"), 5, 700);
        let mut reader = Reader::new();
        assert_eq!(reader.read(root.path()), Some(0));
        set(&root.path().join("a"), 5, 701);
        assert_eq!(reader.read(root.path()), Some(1000));
    }

    #[test]
    fn a_bounded_number_is_read() {
        let root = tempfile::tempdir().unwrap();
        (0..3 * MOST).for_each(|at| set(&root.path().join(at.to_string()), 5, 700));
        let mut reader = Reader::new();
        assert_eq!(reader.read(root.path()), Some(0));
        assert_eq!(reader.nested.as_ref().unwrap().throttled.len(), MOST);
        // One that takes the place of another may be older.
        for entry in fs::read_dir(root.path()).unwrap().take(MOST) {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        assert_eq!(reader.read(root.path()), Some(0));
    }
}
