//! Naming: which series a cgroup feeds, as the pods become known and change.

use super::{Sampler, YOUNG_TICKS};
use crate::cgroup::{Cgroup, CgroupId, Kind, Naming};
use crate::naming::{self, KnownContainer, Limits, Name};
use crate::series::{SeriesId, Track};
use crate::snapshot::ContainerIdentity;

impl Sampler {
    /// Shows what has got its name, or its usage, since the last tick: a container is not to wait for the next one.
    pub(super) fn welcome(&mut self) {
        let is_new = |cgroup: &Cgroup| cgroup.is_unread() || cgroup.awaits_usage();
        let has_names = self.names.index().generation() != self.index.generation();
        if !self.awaits_news || !has_names && !self.awaits_usage() {
            return;
        }
        self.rename();
        self.read_ranks(is_new);
        self.awaits_news |= self.awaits_usage();
        self.publish();
    }

    /// Some new container's usage may still come.
    pub(super) fn awaits_usage(&self) -> bool {
        self.tree.cgroups.iter().any(|(_, cgroup)| cgroup.awaits_usage())
    }

    /// Gives names to what has none yet, and to everything when the pods have changed.
    pub(super) fn rename(&mut self) {
        let index = self.names.index();
        let changed = index.generation() != self.index.generation();
        self.index = index;
        self.awaits_news = false;
        let may_answer = self.names.may_answer();
        if !self.ghosts.is_empty() {
            self.name_ghosts();
        }
        for id in 0..self.tree.cgroups.capacity() {
            let Some(cgroup) = self.tree.cgroups.get(id) else { continue };
            let open = cgroup.naming == Naming::Pending || cgroup.naming == Naming::Unmapped && may_answer;
            match cgroup.kind {
                Kind::Container(_) if open || changed => self.name(id),
                Kind::Pod { .. } if changed && cgroup.series.is_some() => self.name_pod(id),
                _ => {}
            }
            if self.tree.tick < self.tree.cgroups[id].born + YOUNG_TICKS {
                self.tree.open_files(id, &mut self.errors);
            }
        }
    }

    /// Names containers that were gone before the kubelet listed them: their counts are their pod's all the same.
    fn name_ghosts(&mut self) {
        let Self { ghosts, names, index, containers, .. } = self;
        ghosts.retain(|ghost| match naming::name(names.as_ref(), index, &ghost.key, ghost.found, Limits::default()) {
            Name::Known(known) => {
                let series = containers.rename(ghost.series, known.identity, ghost.pod, true);
                containers.detach(series);
                false
            }
            Name::Sandbox => {
                containers.remove(ghost.series);
                false
            }
            Name::Pending | Name::Unmapped => true,
        });
    }

    pub(super) fn name(&mut self, id: CgroupId) {
        let cgroup = &self.tree.cgroups[id];
        let Kind::Container(key) = &cgroup.kind else { return };
        match naming::name(self.names.as_ref(), &self.index, key, cgroup.found, self.limits(cgroup)) {
            Name::Known(known) => self.name_known(id, *known),
            Name::Sandbox => self.name_sandbox(id),
            Name::Unmapped if cgroup.naming == Naming::Unmapped => {}
            Name::Unmapped => {
                let identity = naming::unmapped(key);
                self.place(id, identity, true, Naming::Unmapped);
            }
            Name::Pending => {
                self.awaits_news = true;
                // A name that was known stays while the source is confused.
                if cgroup.series.is_none() {
                    let identity = naming::unmapped(key);
                    self.place(id, identity, false, Naming::Pending);
                }
            }
        }
    }

    fn limits(&self, cgroup: &Cgroup) -> Limits {
        let row = cgroup.series.map(|series| self.containers.get(series).row());
        Limits {
            cpu_cores: cgroup.bandwidth.and_then(|bandwidth| bandwidth.limit_cores()),
            memory_bytes: row.and_then(|row| row.memory_limit_bytes),
        }
    }

    fn name_known(&mut self, id: CgroupId, known: KnownContainer) {
        let KnownContainer { identity, request_cores, memory_request_bytes, spec } = known;
        let was_closed = self.tree.cgroups[id].naming == Naming::Sandbox;
        let series = self.place(id, identity, true, Naming::Named);
        let row = self.containers.get_mut(series).row_mut();
        row.request_cores = request_cores;
        row.memory_request_bytes = memory_request_bytes;
        row.spec = Some(spec);
        if was_closed {
            self.tree.open_files(id, &mut self.errors);
        }
    }

    fn name_sandbox(&mut self, id: CgroupId) {
        let cgroup = &mut self.tree.cgroups[id];
        if std::mem::replace(&mut cgroup.naming, Naming::Sandbox) == Naming::Sandbox {
            return;
        }
        if let Some(series) = cgroup.series.take() {
            self.containers.remove(series);
        }
        self.tree.close_files(id);
    }

    /// Lets a cgroup feed the series of `identity`.
    fn place(&mut self, id: CgroupId, identity: ContainerIdentity, visible: bool, naming: Naming) -> SeriesId {
        let cgroup = &mut self.tree.cgroups[id];
        cgroup.naming = naming;
        let pod = cgroup.parent.unwrap_or(id);
        let series = match cgroup.series {
            Some(series) => self.containers.rename(series, identity, pod, visible),
            None => self.containers.attach(identity, pod, visible),
        };
        cgroup.series = Some(series);
        // A cgroup of the same id takes over what its predecessor left without a name.
        self.ghosts.retain(|ghost| ghost.series != series);
        series
    }

    pub(super) fn name_pod(&mut self, id: CgroupId) {
        let cgroup = &mut self.tree.cgroups[id];
        let Kind::Pod { uid } = &cgroup.kind else { return };
        let (identity, known) = naming::pod(&self.index, uid);
        let visible = known || !self.names.may_answer();
        let series = match cgroup.series {
            Some(series) => self.pods.rename(series, identity, id, visible),
            None => self.pods.attach(identity, id, visible),
        };
        cgroup.series = Some(series);
    }
}
