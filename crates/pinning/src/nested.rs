//! Cpusets below a v1 container, created by its application or by an unknown runtime. The kernel
//! rejects a container's cpuset that is smaller than a child's (EBUSY), and children do not grow
//! with it. Narrowed cpusets are recorded, so that the application's choice can be restored.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cgroupfs::{control, cpuset};
use kernel_text::CpuSet;
use state_dir::Narrowed;

/// Maximum number of nested cgroups per container that are read, written and recorded. A container
/// with more nested cpusets that set CPUs cannot be narrowed; this is reported as its pod's error.
const KEPT: usize = 256;

/// Nested cpusets that were narrowed, by path.
pub(crate) type NarrowedCpusets = BTreeMap<PathBuf, Narrowed>;

/// A nested cpuset with its current and its target CPUs.
#[derive(Debug)]
struct Fit {
    path: PathBuf,
    inode: u64,
    now: CpuSet,
    /// The application's choice; `None` if it had all CPUs of its parent.
    chosen: Option<CpuSet>,
    goal: CpuSet,
}

/// Nested cpusets of a container, parents before children.
#[derive(Debug, Default)]
struct Fits {
    all: Vec<Fit>,
    /// Whether the limit of nested cpusets was exceeded.
    is_cut: bool,
}

/// Records in advance what writing these CPUs into the container will narrow.
pub(crate) fn foresee(container: &Path, cpus: &CpuSet, narrowed: &mut NarrowedCpusets) {
    let Ok(before) = configured(container) else { return };
    if !before.is_subset(cpus) {
        let fits = Fits::find(container, &before, cpus, narrowed);
        fits.all.iter().filter(|_| !fits.is_cut).for_each(|fit| fit.remember(narrowed));
    }
}

/// Narrows the cpusets below a container to `cpus`. Returns the number of cpusets written, 0 if the
/// limit is exceeded. A failed write is not reported here: the write of the container's own cpuset
/// fails then.
pub(crate) fn narrow(
    container: &Path,
    before: &CpuSet,
    cpus: &CpuSet,
    narrowed: &mut NarrowedCpusets,
) -> usize {
    let fits = Fits::find(container, before, cpus, narrowed);
    if fits.is_cut { 0 } else { fits.apply(narrowed) }
}

/// Lets the cpusets below a container grow with it.
pub(crate) fn follow(
    container: &Path,
    before: &CpuSet,
    cpus: &CpuSet,
    narrowed: &mut NarrowedCpusets,
) {
    Fits::find(container, before, cpus, narrowed).apply(narrowed);
}

/// Restores the applications' choices, limited to the parent's CPUs. Returns the number of restored
/// cpusets.
pub(crate) fn give_back(narrowed: &NarrowedCpusets) -> usize {
    let give_back_one = |(path, was): (&PathBuf, &Narrowed)| {
        let now = configured(path).ok().filter(|now| is_as_written(was, path, now))?;
        let above = configured(path.parent()?).ok()?;
        let goal = Some(was.chosen.parse::<CpuSet>().ok()?.intersection(&above))
            .filter(|goal| !goal.is_empty())?;
        write(path, &now.union(&goal)).ok()?;
        // Cpusets below that followed the narrowing follow the restore.
        Fits::find(path, &now, &goal, narrowed).apply(&mut NarrowedCpusets::new());
        (goal != now).then(|| write(path, &goal).ok())?
    };
    narrowed.iter().filter_map(give_back_one).count()
}

fn is_as_written(was: &Narrowed, path: &Path, now: &CpuSet) -> bool {
    was.written == now.to_string() && cgroupfs::inode(path).is_ok_and(|inode| inode == was.inode)
}

impl Fit {
    fn remember(&self, narrowed: &mut NarrowedCpusets) {
        match self.chosen.as_ref().filter(|chosen| **chosen != self.goal) {
            Some(chosen) => {
                let (chosen, written) = (chosen.to_string(), self.goal.to_string());
                narrowed.insert(self.path.clone(), Narrowed { inode: self.inode, chosen, written });
            }
            None => drop(narrowed.remove(&self.path)),
        }
    }
}

impl Fits {
    /// Nested cpusets of a container whose CPUs change from `before` to `cpus`.
    fn find(container: &Path, before: &CpuSet, cpus: &CpuSet, narrowed: &NarrowedCpusets) -> Self {
        let mut fits = Self::default();
        fits.add_children(container, before, cpus, narrowed);
        let mut next = 0;
        while let Some(Fit { path, now, goal, .. }) = fits.all.get(next).filter(|_| !fits.is_cut) {
            let (path, now, goal) = (path.clone(), now.clone(), goal.clone());
            fits.add_children(&path, &now, &goal, narrowed);
            next += 1;
        }
        fits
    }

    fn add_children(
        &mut self,
        parent: &Path,
        before: &CpuSet,
        cpus: &CpuSet,
        narrowed: &NarrowedCpusets,
    ) {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for path in children.map(|entry| entry.path()).take(KEPT + 1) {
            // A cgroup without CPUs of its own does not keep its parent from shrinking, and neither
            // does anything below it.
            let Some(now) = configured(&path).ok().filter(|now| !now.is_empty()) else { continue };
            let Ok(inode) = cgroupfs::inode(&path) else { continue };
            if self.all.len() == KEPT {
                self.is_cut = true;
                return;
            }
            let known = narrowed
                .get(&path)
                .filter(|was| was.inode == inode && was.written == now.to_string());
            let chosen = known
                .and_then(|was| was.chosen.parse().ok())
                .or_else(|| (now != *before).then(|| now.clone()));
            let goal = fitted(chosen.as_ref(), cpus);
            self.all.push(Fit { path, inode, now, chosen, goal });
        }
    }

    /// Writes the cpusets that differ, and returns their number. First parents before children with
    /// the union of old and new CPUs, then children before parents with the new CPUs.
    fn apply(&self, narrowed: &mut NarrowedCpusets) -> usize {
        let grown = self.all.iter().filter(|fit| !fit.goal.is_subset(&fit.now));
        let grown = grown.filter(|fit| write(&fit.path, &fit.now.union(&fit.goal)).is_ok()).count();
        let mut shrunk = 0;
        for fit in self.all.iter().rev() {
            if !fit.now.is_subset(&fit.goal) {
                if write(&fit.path, &fit.goal).is_err() {
                    continue;
                }
                shrunk += 1;
            }
            fit.remember(narrowed);
        }
        grown + shrunk
    }
}

/// Target CPUs of a nested cpuset whose parent has `above`: the application's choice limited to
/// `above`. Without a choice, or if none of these CPUs is left, all of `above`.
fn fitted(chosen: Option<&CpuSet>, above: &CpuSet) -> CpuSet {
    let rest = chosen.map(|chosen| chosen.intersection(above)).filter(|rest| !rest.is_empty());
    rest.unwrap_or_else(|| above.clone())
}

/// Reads `cpuset.cpus`; empty if the file is missing.
pub(crate) fn configured(path: &Path) -> cgroupfs::Result<CpuSet> {
    cpuset::configured(path).map(Option::unwrap_or_default)
}

fn write(path: &Path, cpus: &CpuSet) -> cgroupfs::Result<()> {
    control::write(&path.join(cpuset::CPUS), &cpus.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container made of plain files with CPUs `0-7`, and cpusets below it. All lists have three
    /// characters, because a shorter write into a plain file keeps the rest of the old text.
    fn container(nested: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, cpus) in [("", "0-7")].iter().chain(nested) {
            let path = directory.path().join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(cpuset::CPUS), cpus).unwrap();
        }
        directory
    }

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn read(container: &tempfile::TempDir, nested: &[&str]) -> Vec<String> {
        nested
            .iter()
            .map(|path| configured(&container.path().join(path)).unwrap().to_string())
            .collect()
    }

    #[test]
    fn a_narrowed_cpuset_is_restored_to_the_applications_choice() {
        let container =
            container(&[("all", "0-7"), ("some", "0-3"), ("some/deep", "0-1"), ("other", "6-7")]);
        let nested = ["all", "some", "some/deep", "other"];
        let mut narrowed = NarrowedCpusets::new();
        foresee(container.path(), &set("2-5"), &mut narrowed);
        assert_eq!(narrowed.len(), 3, "{narrowed:?}");
        assert!(narrow(container.path(), &set("0-7"), &set("2-5"), &mut narrowed) >= 4);
        assert_eq!(read(&container, &nested), ["2-5", "2-3", "2-3", "2-5"]);
        follow(container.path(), &set("2-5"), &set("2-7"), &mut narrowed);
        assert_eq!(read(&container, &nested), ["2-7", "2-3", "2-3", "6-7"]);
        follow(container.path(), &set("2-7"), &set("0-7"), &mut narrowed);
        assert_eq!(read(&container, &nested), ["0-7", "0-3", "0-1", "6-7"]);
        assert!(narrowed.is_empty(), "{narrowed:?}");
    }

    #[test]
    fn a_cpuset_that_the_application_set_again_stays() {
        let container = container(&[("app", "0-1")]);
        let mut narrowed = NarrowedCpusets::new();
        narrow(container.path(), &set("0-7"), &set("2-7"), &mut narrowed);
        assert_eq!(read(&container, &["app"]), ["2-7"]);
        fs::write(container.path().join("app/cpuset.cpus"), "4-5").unwrap();
        assert_eq!(give_back(&narrowed), 0);
        follow(container.path(), &set("2-7"), &set("0-7"), &mut narrowed);
        assert_eq!((read(&container, &["app"]), narrowed.len()), (vec!["4-5".to_owned()], 0));
    }

    #[test]
    fn a_nested_cpuset_is_restored_after_its_container_grew() {
        let container = container(&[("app", "0-1"), ("app/deep", "0-1")]);
        let mut narrowed = NarrowedCpusets::new();
        narrow(container.path(), &set("0-7"), &set("2-7"), &mut narrowed);
        assert_eq!(read(&container, &["app", "app/deep"]), ["2-7", "2-7"]);
        assert_eq!(
            (give_back(&narrowed), read(&container, &["app", "app/deep"])),
            (1, vec!["0-1".into(), "0-1".into()])
        );
        assert_eq!(give_back(&narrowed), 0);
    }

    #[test]
    fn more_than_are_looked_into_are_not_narrowed_by_half() {
        let names: Vec<String> = (0..=KEPT).map(|n| format!("a{n}")).collect();
        let nested: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "0-1")).collect();
        let mut narrowed = NarrowedCpusets::new();
        let mut narrow = |nested| {
            let container = container(nested);
            let written = narrow(container.path(), &set("0-7"), &set("2-7"), &mut narrowed);
            (written, narrowed.len())
        };
        assert_eq!(narrow(&nested), (0, 0));
        assert_eq!(narrow(&nested[1..]).1, KEPT);
    }
}
