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
        let NodeState { probe, features, .. } = node;
        let ReadState { errors, buffers, .. } = reader;
        publisher.publish(|snapshot| {
            snapshot.sequence = tick;
            snapshot.taken = Some(SystemTime::now());
            snapshot.read_at = read_at;
            snapshot.interval = interval;
            containers.publish(&mut snapshot.containers);
            snapshot
                .containers
                .iter_mut()
                .for_each(|row| row.weight_rule = probe.kernel.weight_rule);
            snapshot.missing.clone_from(&missing);
            snapshot.waits = waits;
            snapshot.waits.join(&mut snapshot.containers);
            snapshot.gc = gc;
            snapshot.gc.join(&mut snapshot.containers);
            publish_cgroups(tree, containers, &mut snapshot.cgroups);
            pods.publish(&mut snapshot.pods);
            let mut context = Context {
                now,
                cpus: probe.max_cpus(),
                created_after: None,
                implausible: &mut errors.implausible,
            };
            probe.publish(&mut snapshot.node, features, &mut buffers.text, &mut context);
            describe(tree, errors, &mut snapshot.sampler);
            probe.publish_own_cost(&mut snapshot.sampler, &mut buffers.text);
            snapshot.sampler.task_scan_ns = u64::try_from(scan.time.as_nanos()).ok();
            snapshot.sampler.task_scan_threads = Some(scan.threads);
        });
    }
}

/// Writes a row for each cgroup. What a row shares with it already is not shared again: the count of
/// a value that nobody has touched for a second is not in the CPU's cache.
fn publish_cgroups(
    tree: &SampledTree,
    containers: &SeriesTable<ContainerSeries>,
    rows: &mut Vec<CgroupRow>,
) {
    let cgroups = tree.cgroups.iter().map(|(_, cgroup)| cgroup);
    let mut written = 0;
    for cgroup in cgroups.filter(|cgroup| cgroup.kind != SampledKind::Above) {
        if written == rows.len() {
            let path = Arc::clone(&cgroup.relative);
            rows.push(CgroupRow { inode: cgroup.inode, path, kind: CgroupKind::Pending });
        }
        let row = &mut rows[written];
        row.inode = cgroup.inode;
        if !Arc::ptr_eq(&row.path, &cgroup.relative) {
            row.path = Arc::clone(&cgroup.relative);
        }
        if let Some(kind) = other_kind(&row.kind, cgroup, containers) {
            row.kind = kind;
        }
        written += 1;
    }
    rows.truncate(written);
}

/// Role of a cgroup, unless it is a container with the identity of this row.
fn other_kind(
    row: &CgroupKind,
    cgroup: &SampledCgroup,
    containers: &SeriesTable<ContainerSeries>,
) -> Option<CgroupKind> {
    // What runs in the cgroup of such a pod is the sandbox.
    let sandbox = cgroup.pod_sandbox.as_ref().and_then(|sandbox| sandbox.series);
    Some(match (&cgroup.kind, cgroup.naming, sandbox.or(cgroup.series)) {
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
            let identity = &containers.get(series).row().identity;
            if matches!(row, CgroupKind::Container(known) if Arc::ptr_eq(known, identity)) {
                return None;
            }
            CgroupKind::Container(Arc::clone(identity))
        }
        _ => CgroupKind::Pending,
    })
}

/// Counts the cgroups by kind.
fn describe(tree: &SampledTree, errors: &ReadErrors, row: &mut SamplerRow) {
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
    row.read_errors.clear();
    row.read_errors.extend([
        ("vanished", errors.vanished),
        ("io", errors.io),
        ("parse", errors.parse),
        ("implausible", errors.implausible),
    ]);
    row.unkept_cgroups = unkept;
}
