//! Search for the kubepods roots of a hierarchy.

use std::path::{Path, PathBuf};

use kubepods::path::{self, KubepodsRoots};

/// Maximum depth of a kubepods root. `/docker/<id>/kubelet.slice/kubelet-kubepods.slice` on kind has
/// four levels; without root on the host, kind and k3s are below
/// `user.slice/user-<n>.slice/user@<n>.service/<…>.slice/<…>`.
const LOCATE_DEPTH: usize = 8;

/// A root to watch.
#[derive(Debug)]
pub(crate) struct Root {
    /// Path below the mount.
    pub(crate) path: String,
    /// Whether it is this kubelet's.
    pub(crate) is_this_kubelets: bool,
}

/// The roots to watch, and the choice among those that exist.
#[derive(Debug)]
pub(crate) struct Roots {
    /// Roots named by the operator, below the mount; if empty, they are searched for.
    named: Vec<String>,
    /// Whether to watch roots of other kubelets, too.
    others: bool,
    /// Whether to log missing and ambiguous roots.
    reports: bool,
    chosen: KubepodsRoots,
    /// Whether the missing root was already logged.
    is_reported_missing: bool,
}

impl Roots {
    pub(crate) fn new(named: Vec<String>, others: bool, reports: bool) -> Self {
        Self {
            named,
            others,
            reports,
            chosen: KubepodsRoots::default(),
            is_reported_missing: false,
        }
    }

    /// Roots to watch. `known`: paths of roots found before, which stay candidates.
    pub(crate) fn find(&mut self, mount: &Path, known: impl Iterator<Item = String>) -> Vec<Root> {
        let root = |is_this_kubelets| move |path| Root { path, is_this_kubelets };
        if !self.named.is_empty() {
            return self.named.iter().cloned().map(root(true)).collect();
        }
        // Search again each time: after a change of its driver a kubelet leaves the old root beside
        // the new one.
        let chosen = path::choose_roots(locate(mount).into_iter().chain(known));
        if chosen != self.chosen {
            self.report(&chosen);
            self.chosen.clone_from(&chosen);
        }
        let others = chosen.passed_over.into_iter().filter(|_| self.others);
        chosen.taken.into_iter().map(root(true)).chain(others.map(root(false))).collect()
    }

    /// Whether this path below the mount is a root.
    pub(crate) fn is_root(&self, relative: &str) -> bool {
        match self.named.is_empty() {
            true => path::split(relative).is_some_and(|split| split.relative.is_empty()),
            false => self.named.iter().any(|root| root == relative),
        }
    }

    /// Logs which of several cgroups called kubepods are read.
    fn report(&self, chosen: &KubepodsRoots) {
        if self.reports && (chosen.taken.len() > 1 || !chosen.passed_over.is_empty()) {
            let (taken, passed_over) = (chosen.taken.join(", "), chosen.passed_over.join(", "));
            tracing::warn!(
                taken,
                passed_over,
                "found several kubepods cgroups; set --kubepods to the one of this kubelet"
            );
        }
    }

    /// Logs once that there is no root, and again if that recurs.
    pub(crate) fn report_missing(&mut self, is_missing: bool, mount: &Path) {
        if is_missing && self.reports && !self.is_reported_missing {
            let wanted = match self.named.is_empty() {
                true => "kubepods".to_owned(),
                false => self.named.join(", "),
            };
            let below = mount.display();
            tracing::warn!(
                "no cgroup {wanted} below {below}: until it exists, only running containers whose IDs are listed are \
                 sampled (set --kubepods if its name differs)"
            );
        }
        self.is_reported_missing = is_missing;
    }
}

/// Ancestors of a root, from the mount's root down: `""`, `docker`, `docker/0123` for
/// `docker/0123/kubepods`.
pub(crate) fn ancestors(root: &str) -> impl Iterator<Item = &str> {
    let parents = root.match_indices('/').map(|(slash, _)| &root[..slash]);
    std::iter::once("").chain(parents.filter(|parent| !parent.is_empty()))
}

/// Cgroups called kubepods below the mount, as paths relative to it.
fn locate(mount: &Path) -> Vec<String> {
    let is_root = |name: &str| path::kubepods_root(name).is_some();
    let hits = cgroupfs::locate(mount, LOCATE_DEPTH, is_root).unwrap_or_default();
    let relative = |hit: &PathBuf| hit.strip_prefix(mount).ok()?.to_str().map(str::to_owned);
    hits.iter().filter_map(relative).collect()
}
