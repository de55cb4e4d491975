//! Sandboxes whose threads are in the cgroup of their pod: shown as a part of it, as container POD.

use std::time::Instant;

use cgroupfs::{Hierarchy, KeptFile};
use kernel_text::{CgroupVersion, CpuacctStat};
use kubepods::model::Pod;
use kubepods::path::{Driver, QosClass};
use snapshot::MissingContainer;

use super::Sampler;
use crate::cgroup::{CgroupId, ContainerKey, Deltas, PodSandbox, SampledKind};
use crate::files::ReadBuffers;
use crate::naming;
use crate::reading::Modes;
use crate::series::Track as _;
use crate::tree::SampledTree;

impl Sampler {
    /// Marks the pods whose runtime class is one of a sandbox, and those with a running container
    /// that has no cgroup: a sandbox may also be the runtime's default, or of an unknown class.
    pub(super) fn find_pod_sandboxes(&mut self) {
        let index = &self.names.index;
        let known = self.names.sandboxed.filter(|(at, _)| *at == index.generation());
        let (_, any) = *self.names.sandboxed.insert(known.unwrap_or_else(|| {
            (index.generation(), index.pods().iter().any(|pod| pod.is_sandboxed()))
        }));
        let missing = self.missing.reported().map(|missing| &**missing).unwrap_or_default();
        if !any && missing.is_empty() {
            return;
        }
        let is_one = |pod: &Pod| {
            let is_its =
                |row: &MissingContainer| row.namespace == pod.namespace && row.pod == pod.name;
            pod.is_sandboxed() || missing.iter().any(is_its)
        };
        for (id, cgroup) in self.tree.cgroups.iter_mut() {
            if let SampledKind::Pod { uid } = &cgroup.kind
                && cgroup.pod_sandbox.is_none()
                && index.pod(uid).is_some_and(|pod| is_one(pod))
            {
                cgroup.pod_sandbox = Some(Box::default());
                self.tree.pod_sandboxes.push(id);
            }
        }
    }

    /// Counts what each of these pods has used beyond the cgroups below it, once that is more than a
    /// pause process uses.
    pub(super) fn count_pod_sandboxes(&mut self, now: Instant) {
        let cgroups = &self.tree.cgroups;
        self.tree.pod_sandboxes.retain(|&id| cgroups.contains(id));
        for at in 0..self.tree.pod_sandboxes.len() {
            let id = self.tree.pod_sandboxes[at];
            let modes = self.tree.read_modes(id, &mut self.reader.buffers);
            let cgroup = &mut self.tree.cgroups[id];
            let Some(mut sandbox) = cgroup.pod_sandbox.take() else { continue };
            if let Some(modes) = modes {
                sandbox.add_modes(modes);
            }
            if sandbox.series.is_some() || sandbox.is_busy(now) {
                self.show_pod_sandbox(id, &mut sandbox);
            }
            self.tree.cgroups[id].pod_sandbox = Some(sandbox);
        }
    }

    fn show_pod_sandbox(&mut self, id: CgroupId, sandbox: &mut PodSandbox) {
        let cgroup = &self.tree.cgroups[id];
        let SampledKind::Pod { uid } = &cgroup.kind else { return };
        if sandbox.series.is_none() {
            let is_slice = cgroup.relative.ends_with(".slice");
            let driver = if is_slice { Driver::Systemd } else { Driver::Cgroupfs };
            let key =
                ContainerKey { uid: uid.clone(), id: "".into(), qos: QosClass::BestEffort, driver };
            let Some(identity) = naming::sandbox(&self.names.index, &key) else { return };
            sandbox.series = Some(self.ledger.containers.attach(identity, id, true));
        }
        let Some(series) = sandbox.series else { return };
        let series = self.ledger.containers.get_mut(series);
        series.add(&sandbox.settle(), false);
        series.row_mut().cpu_limit = cgroup.path.limit;
    }
}

impl SampledTree {
    /// Adds what a cgroup has used to the sandbox of its pod: of the pod itself, or less if it is
    /// below it.
    pub(crate) fn count_pod_sandbox(&mut self, id: CgroupId, deltas: &Deltas) {
        let cgroup = &mut self.cgroups[id];
        if let Some(sandbox) = &mut cgroup.pod_sandbox {
            return sandbox.add(deltas);
        }
        let Some(parent) = cgroup.parent.filter(|_| cgroup.kind.container().is_some()) else {
            return;
        };
        if let Some(sandbox) = &mut self.cgroups[parent].pod_sandbox {
            sandbox.take_off(deltas);
        }
    }

    /// v1: user and system time of a pod.
    fn read_modes(&self, id: CgroupId, buffers: &mut ReadBuffers) -> Option<Modes> {
        let Hierarchy { version: CgroupVersion::V1, cpuacct, .. } = &self.hierarchy else {
            return None;
        };
        let directory = cpuacct.as_deref()?.join(&*self.cgroups[id].relative);
        let file = KeptFile::open(&directory, "cpuacct.stat").ok()??;
        let text = file.read(&mut buffers.text).ok()?;
        Some(Modes::of_ticks(CpuacctStat::parse(text).ok()?))
    }
}
