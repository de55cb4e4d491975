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

fn fits_parent(root: &Root, parent: &str) -> bool {
    root.slice_prefix.is_empty() || parent.strip_suffix(".slice") == Some(&root.slice_prefix)
}
