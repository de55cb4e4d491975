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
            snapshot.cgroups.clear();
            let cgroups = tree
                .cgroups
                .iter()
                .map(|(_, cgroup)| cgroup)
                .filter(|cgroup| cgroup.kind != SampledKind::Above);
            snapshot.cgroups.extend(cgroups.map(|cgroup| cgroup_row(cgroup, containers)));
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

/// Row of a cgroup.
fn cgroup_row(cgroup: &SampledCgroup, containers: &mut SeriesTable<ContainerSeries>) -> CgroupRow {
    let kind = match (&cgroup.kind, cgroup.naming, cgroup.series) {
        (
            SampledKind::Above | SampledKind::Root | SampledKind::Partition | SampledKind::Qos,
            ..,
        ) => CgroupKind::AbovePods,
        (SampledKind::Pod { .. }, ..) => CgroupKind::Pod,
        (SampledKind::Conmon, ..) | (_, Naming::Sandbox, _) => CgroupKind::Sandbox,
        (_, Naming::Named | Naming::Unmapped | Naming::BusySandbox, Some(series)) => {
            CgroupKind::Container(Arc::clone(&containers.get_mut(series).row_mut().identity))
        }
        _ => CgroupKind::Pending,
    };
    CgroupRow { inode: cgroup.inode, path: Arc::clone(&cgroup.relative), kind }
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
