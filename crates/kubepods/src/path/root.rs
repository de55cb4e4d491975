//! Start of the kubelet's tree: the component that is kubepods, as opposed to similar names.

use super::{CgroupPath, Driver, parse};

/// The kubepods root: its driver, and the prefix of `kubepods` in the slice names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Root {
    /// Driver, which determines the names below.
    pub driver: Driver,
    /// systemd only: the kubelet's own cgroup root, joined by dashes, without the last dash
    /// (`kubelet` on kind). Empty if kubepods is at the root.
    pub slice_prefix: Box<str>,
}

impl Root {
    /// Name of the root's own path component.
    pub fn component(&self) -> String {
        match self.driver {
            Driver::Cgroupfs => "kubepods".to_owned(),
            Driver::Systemd => self.slice(&["kubepods"]),
        }
    }

    /// Name of the slice with these parts below the prefix: `[<prefix>-]<part>-<part>.slice`.
    pub(super) fn slice(&self, parts: &[&str]) -> String {
        let mut name = String::with_capacity(96);
        for part in std::iter::once(&*self.slice_prefix)
            .chain(parts.iter().copied())
            .filter(|part| !part.is_empty())
        {
            if !name.is_empty() {
                name.push('-');
            }
            name.push_str(part);
        }
        name.push_str(".slice");
        name
    }
}

/// Parses one path component: `Some` for exactly `kubepods`, `kubepods.slice` or
/// `<prefix>-kubepods.slice`.
///
/// Returns `None` for cgroups of other programs, such as `kubepods-bench`. A component alone does
/// not show whether a prefixed slice is the kubelet's; [`split`] also checks the parent.
pub fn kubepods_root(component: &str) -> Option<Root> {
    if component == "kubepods" {
        return Some(cgroupfs());
    }
    systemd(component.strip_suffix(".slice")?)
}

pub(super) fn cgroupfs() -> Root {
    Root { driver: Driver::Cgroupfs, slice_prefix: "".into() }
}

/// The tree of `[<prefix>-]kubepods`, from a slice name without suffix and levels. systemd rejects
/// empty parts.
pub(super) fn systemd(name: &str) -> Option<Root> {
    let prefix = match name.strip_suffix("kubepods")? {
        "" => "",
        prefixed => prefixed.strip_suffix('-')?,
    };
    let valid = name == "kubepods" || prefix.split('-').all(|part| !part.is_empty());
    valid.then(|| Root { driver: Driver::Systemd, slice_prefix: prefix.into() })
}

/// A cgroup path split at the kubepods root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<'a> {
    /// Path up to and including the kubepods component.
    pub top: &'a str,
    /// Root of the tree.
    pub root: Root,
    /// Input of [`parse()`]; empty at the top itself.
    pub relative: &'a str,
}

/// Finds the kubepods root in a path such as those in `/proc/<pid>/cgroup`, also below the
/// prefixes of kind, k3s and minikube (`/docker/<id>/kubelet/kubepods/…`). A prefixed slice must be
/// inside the slice where systemd would create it: `kubelet-kubepods.slice` inside `kubelet.slice`.
pub fn split(path: &str) -> Option<Split<'_>> {
    let mut parent = "";
    let mut begin = 0;
    for component in path.split('/') {
        let end = begin + component.len();
        if let Some(root) = kubepods_root(component).filter(|root| fits_parent(root, parent)) {
            let relative = path[end..].trim_start_matches('/');
            return Some(Split { top: &path[..end], root, relative });
        }
        parent = component;
        begin = end + 1;
    }
    None
}

/// Parses a path below a mount, such as `kubepods/burstable/pod<uid>/<id>`: [`split`], then
/// [`parse()`].
pub fn parse_below_mount(path: &str) -> Option<CgroupPath> {
    parse(split(path)?.relative)
}

/// Cgroups called kubepods, divided into this kubelet's and others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubepodsRoots {
    /// This kubelet's roots; more than one only after a change of its driver.
    pub taken: Vec<String>,
    /// Roots of nested nodes and other programs, and candidates that cannot be attributed to
    /// this kubelet.
    pub passed_over: Vec<String>,
}

/// Chooses this kubelet's roots from `candidates`: paths below the mount that end in a
/// kubepods component.
///
/// A kubelet creates its tree at the root, or where systemd places `--cgroup-root`: `kubepods`,
/// `kubepods.slice`, `kubelet.slice/kubelet-kubepods.slice`. Without such a tree, the candidate
/// with the fewest levels above it is taken if it is unique: `kubelet/kubepods`, or
/// `docker/<id>/kubelet/kubepods` on the host of a node in a container. If there are several, none
/// is taken, because each may be another node's; `--kubepods` names the right one.
pub fn choose_roots(candidates: impl IntoIterator<Item = String>) -> KubepodsRoots {
    let is_kubelets = |path: &String| split(path).is_some_and(|split| split.relative.is_empty());
    let mut candidates: Vec<String> = candidates.into_iter().filter(is_kubelets).collect();
    candidates.sort();
    candidates.dedup();
    let rank = |path: &String| if is_at_the_root(path) { 0 } else { path.split('/').count() };
    let lowest = candidates.iter().map(rank).min().unwrap_or_default();
    let (taken, mut passed_over): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|path| rank(path) == lowest);
    if lowest == 0 || taken.len() == 1 {
        return KubepodsRoots { taken, passed_over };
    }
    passed_over.extend(taken);
    passed_over.sort();
    KubepodsRoots { taken: Vec::new(), passed_over }
}

/// Whether the path is `kubepods`, `kubepods.slice`, or a slice inside exactly the slices that its
/// own name implies.
fn is_at_the_root(path: &str) -> bool {
    let (above, component) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(root) = kubepods_root(component) else { return false };
    let mut name = String::new();
    let expected = root.slice_prefix.split('-').filter(|part| !part.is_empty()).map(|part| {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(part);
        format!("{name}.slice")
    });
    expected.collect::<Vec<_>>().join("/") == above
}

fn fits_parent(root: &Root, parent: &str) -> bool {
    root.slice_prefix.is_empty() || parent.strip_suffix(".slice") == Some(&root.slice_prefix)
}
