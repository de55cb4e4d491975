//! Rows published after a tick.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use snapshot::{CgroupKind, CgroupRow, SamplerRow};

use super::node::NodeState;
use super::reads::ReadState;
use super::schedule::Schedule;
use super::{Ledger, Sampler};
use crate::cgroup::{Naming, SampledCgroup, SampledKind};
use crate::counter::Context;
use crate::files::ReadErrors;
use crate::series::{ContainerSeries, SeriesTable, Track};
use crate::tree::SampledTree;

impl Sampler {
    pub(super) fn publish(&mut self, now: Instant) {
        let Schedule { tick, read_at, .. } = self.schedule;
        let interval = self.interval();
        let scan = self.reader.tasks.cost();
        let (waits, gc) = (self.publisher.waits().latest(), self.publisher.gc().latest());
        let missing = self.missing.reported().cloned();
        let Self { publisher, ledger, tree, node, reader, .. } = self;
        let Ledger { containers, pods } = ledger;
        let NodeState { probe, features, published_rule, .. } = node;
        let ReadState { errors, buffers, .. } = reader;
        let rule = probe.kernel.weight_rule;
        if published_rule.replace(rule) != Some(rule) {
            containers.touch_all();
        }
        publisher.publish(|snapshot, publication| {
            snapshot.sequence = tick;
            snapshot.taken = Some(SystemTime::now());
            snapshot.read_at = read_at;
            snapshot.interval = interval;
            let are_cgroups_new =
                tree.differs_since(publication) || containers.differs_since(publication.written);
            containers.publish(&mut snapshot.containers, publication, |row| row.weight_rule = rule);
            snapshot.missing.clone_from(&missing);
            let had_waits = !std::mem::replace(&mut snapshot.waits, waits).containers.is_empty();
            if had_waits || !snapshot.waits.containers.is_empty() {
                snapshot.waits.join(&mut snapshot.containers);
            }
            let had_gc = !std::mem::replace(&mut snapshot.gc, gc).containers.is_empty();
            if had_gc || !snapshot.gc.containers.is_empty() {
                snapshot.gc.join(&mut snapshot.containers);
            }
            if are_cgroups_new {
                let cgroups = tree.cgroups.iter().map(|(_, cgroup)| cgroup);
                let shown = cgroups.filter(|cgroup| cgroup.kind != SampledKind::Above);
                snapshot.cgroups.clear();
                snapshot.cgroups.extend(shown.map(|cgroup| cgroup_row(cgroup, containers)));
                count(tree, &mut snapshot.sampler);
            }
            pods.publish(&mut snapshot.pods, publication, |_| {});
            let mut context = Context {
                now,
                cpus: probe.max_cpus(),
                created_after: None,
                implausible: &mut errors.implausible,
            };
            probe.publish(&mut snapshot.node, features, &mut buffers.text, &mut context);
            publish_errors(errors, &mut snapshot.sampler);
            probe.publish_own_cost(&mut snapshot.sampler, &mut buffers.text);
            snapshot.sampler.task_scan_ns = u64::try_from(scan.time.as_nanos()).ok();
            snapshot.sampler.task_scan_threads = Some(scan.threads);
        });
    }
}

/// Row of a cgroup.
fn cgroup_row(cgroup: &SampledCgroup, containers: &SeriesTable<ContainerSeries>) -> CgroupRow {
    // What runs in the cgroup of such a pod is the sandbox.
    let sandbox = cgroup.pod_sandbox.as_ref().and_then(|sandbox| sandbox.series);
    let kind = match (&cgroup.kind, cgroup.naming, sandbox.or(cgroup.series)) {
        (
            SampledKind::Above | SampledKind::Root | SampledKind::Partition | SampledKind::Qos,
            ..,
        ) => CgroupKind::AbovePods,
        (SampledKind::Pod { .. }, ..) if sandbox.is_none() => CgroupKind::Pod,
        (SampledKind::Conmon, ..) | (SampledKind::Container(_), Naming::Sandbox, _) => {
            CgroupKind::Sandbox
        }
        (SampledKind::Pod { .. }, _, Some(series))
        | (_, Naming::Named | Naming::Unmapped | Naming::BusySandbox, Some(series)) => {
            CgroupKind::Container(Arc::clone(&containers.get(series).row().identity))
        }
        _ => CgroupKind::Pending,
    };
    CgroupRow { inode: cgroup.inode, path: Arc::clone(&cgroup.relative), kind }
}

/// Counts the cgroups by kind.
fn count(tree: &SampledTree, row: &mut SamplerRow) {
    let (mut container, mut sandbox, mut pod, mut qos, mut unmapped, mut unkept) =
        (0, 0, 0, 0, 0, 0);
    for (_, cgroup) in tree.cgroups.iter() {
        unkept += u64::from(cgroup.files.any_unkept());
        match (&cgroup.kind, cgroup.naming) {
            (SampledKind::Above | SampledKind::Root | SampledKind::Partition, _) => {}
            (SampledKind::Qos, _) => qos += 1,
            (SampledKind::Pod { .. }, _) => pod += 1,
            (_, Naming::Sandbox | Naming::BusySandbox) => sandbox += 1,
            (_, naming) => {
                container += 1;
                unmapped += u64::from(naming == Naming::Unmapped);
            }
        }
    }
    row.cgroups.clear();
    row.cgroups.extend([
        ("container", container),
        ("sandbox", sandbox),
        ("pod", pod),
        ("qos", qos),
    ]);
    row.unmapped_cgroups.clear();
    row.unmapped_cgroups.push(("container", unmapped));
    row.unkept_cgroups = unkept;
}

fn publish_errors(errors: &ReadErrors, row: &mut SamplerRow) {
    row.read_errors.clear();
    row.read_errors.extend([
        ("vanished", errors.vanished),
        ("io", errors.io),
        ("parse", errors.parse),
        ("implausible", errors.implausible),
    ]);
}
