//! Where the kubelet's tree begins: the component that *is* kubepods, and not one that merely looks like it.

use super::Driver;

/// The kubelet's top cgroup: which driver made it, and what stands before `kubepods` in its slices' names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Root {
    /// Spelling of the names below.
    pub driver: Driver,
    /// systemd only: the kubelet's own cgroup root, joined by dashes, without the last dash (`kubelet` on kind).
    /// Empty where kubepods is at the top.
    pub slice_prefix: Box<str>,
}

impl Root {
    /// The root's own component.
    pub fn component(&self) -> String {
        match self.driver {
            Driver::Cgroupfs => "kubepods".to_owned(),
            Driver::Systemd => self.slice(&["kubepods"]),
        }
    }

    /// The slice of these parts, below the prefix: `[<prefix>-]<part>-<part>.slice`.
    pub(super) fn slice(&self, parts: &[&str]) -> String {
        let mut name = String::with_capacity(96);
        for part in std::iter::once(&*self.slice_prefix).chain(parts.iter().copied()).filter(|part| !part.is_empty()) {
            if !name.is_empty() {
                name.push('-');
            }
            name.push_str(part);
        }
        name.push_str(".slice");
        name
    }
}

/// Reads one path component: `Some` for exactly `kubepods`, `kubepods.slice` or `<prefix>-kubepods.slice`.
///
/// Other programs have `kubepods-bench` and the like; those are `None`. A component alone cannot tell whether a prefixed
/// slice is the kubelet's; [`split`] also looks at the parent.
pub fn kubepods_root(component: &str) -> Option<Root> {
    if component == "kubepods" {
        return Some(cgroupfs());
    }
    systemd(component.strip_suffix(".slice")?)
}

pub(super) fn cgroupfs() -> Root {
    Root { driver: Driver::Cgroupfs, slice_prefix: "".into() }
}

/// The tree of `[<prefix>-]kubepods`, from a slice's name without suffix and levels. systemd refuses empty parts.
pub(super) fn systemd(name: &str) -> Option<Root> {
    let prefix = match name.strip_suffix("kubepods")? {
        "" => "",
        prefixed => prefixed.strip_suffix('-')?,
    };
    let valid = name == "kubepods" || prefix.split('-').all(|part| !part.is_empty());
    valid.then(|| Root { driver: Driver::Systemd, slice_prefix: prefix.into() })
}

/// A cgroup path cut at the kubelet's top cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<'a> {
    /// Up to and with the kubepods component.
    pub top: &'a str,
    /// Which tree it is.
    pub root: Root,
    /// What [`super::parse`] takes; empty at the top itself.
    pub relative: &'a str,
}

/// Finds the kubelet's top cgroup in a path such as `/proc/<pid>/cgroup` gives, also below prefixes that kind, k3s and
/// minikube add (`/docker/<id>/kubelet/kubepods/…`). A prefixed slice counts only inside the slice that systemd would
/// put it in: `kubelet-kubepods.slice` inside `kubelet.slice`.
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

/// Cgroups called kubepods, told apart into this kubelet's and others'.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tops {
    /// This kubelet's; more than one only where a kubelet has changed its driver.
    pub taken: Vec<String>,
    /// Nested nodes' and other programs', or none of several can be told to be this kubelet's.
    pub passed_over: Vec<String>,
}

/// Chooses this kubelet's top cgroups from `candidates`, paths below the mount that end in a kubepods component.
///
/// A kubelet makes its tree at the root, or where systemd puts `--cgroup-root`: `kubepods`, `kubepods.slice`,
/// `kubelet.slice/kubelet-kubepods.slice`. Where there is none of these, the only candidate with the fewest levels above
/// it is taken: `kubelet/kubepods`, or on the host of a node that is a container `docker/<id>/kubelet/kubepods`. Among
/// several of those none is taken: each may be another node's, and `--kubepods` names the right one.
pub fn choose_tops(candidates: impl IntoIterator<Item = String>) -> Tops {
    let is_kubelets = |path: &String| split(path).is_some_and(|split| split.relative.is_empty());
    let mut candidates: Vec<String> = candidates.into_iter().filter(is_kubelets).collect();
    candidates.sort();
    candidates.dedup();
    let rank = |path: &String| if is_at_the_root(path) { 0 } else { path.split('/').count() };
    let lowest = candidates.iter().map(rank).min().unwrap_or_default();
    let (taken, mut passed_over): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|path| rank(path) == lowest);
    if lowest == 0 || taken.len() == 1 {
        return Tops { taken, passed_over };
    }
    passed_over.extend(taken);
    passed_over.sort();
    Tops { taken: Vec::new(), passed_over }
}

/// `kubepods`, `kubepods.slice`, or a slice inside exactly the slices that its own name tells.
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
