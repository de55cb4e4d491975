//! Rows published after a tick.

use std::sync::Arc;
use std::time::SystemTime;

use snapshot::{CgroupKind, CgroupRow, SamplerRow};

use super::Sampler;
use crate::cgroup::{Cgroup, Kind, Naming};
use crate::files::ReadErrors;
use crate::series::{ContainerSeries, Table, Track};
use crate::tree::Tree;

impl Sampler {
    pub(super) fn publish(&mut self) {
        let (interval, read_at) = (self.interval(), self.read_at);
        let scan = self.tasks.cost();
        let Self {
            publisher, containers, pods, tree, probe, errors, buffer, features, waits, ..
        } = self;
        publisher.publish(|snapshot| {
            snapshot.sequence = tree.tick;
            snapshot.taken = Some(SystemTime::now());
            snapshot.read_at = read_at;
            snapshot.interval = interval;
            containers.publish(&mut snapshot.containers);
            snapshot
                .containers
                .iter_mut()
                .for_each(|row| row.weight_rule = probe.kernel.weight_rule);
            snapshot.waits = waits.latest();
            snapshot.waits.join(&mut snapshot.containers);
            snapshot.cgroups.clear();
            let cgroups = tree
                .cgroups
                .iter()
                .map(|(_, cgroup)| cgroup)
                .filter(|cgroup| cgroup.kind != Kind::Above);
            snapshot.cgroups.extend(cgroups.map(|cgroup| cgroup_row(cgroup, containers)));
            pods.publish(&mut snapshot.pods);
            probe.publish(&mut snapshot.node, features, buffer);
            describe(tree, errors, &mut snapshot.sampler);
            probe.publish_own_cost(&mut snapshot.sampler, buffer);
            snapshot.sampler.task_scan_ns = u64::try_from(scan.time.as_nanos()).ok();
            snapshot.sampler.task_scan_threads = Some(scan.threads);
        });
    }
}

/// Row of a cgroup.
fn cgroup_row(cgroup: &Cgroup, containers: &mut Table<ContainerSeries>) -> CgroupRow {
    let kind = match (&cgroup.kind, cgroup.naming, cgroup.series) {
        (Kind::Above | Kind::Root | Kind::Partition | Kind::Qos, ..) => CgroupKind::Top,
        (Kind::Pod { .. }, ..) => CgroupKind::Pod,
        (Kind::Conmon, ..) | (_, Naming::Sandbox, _) => CgroupKind::Sandbox,
        (_, Naming::Named | Naming::Unmapped, Some(series)) => {
            CgroupKind::Container(Arc::clone(&containers.get_mut(series).row_mut().identity))
        }
        _ => CgroupKind::Pending,
    };
    CgroupRow { inode: cgroup.inode, path: Arc::clone(&cgroup.relative), kind }
}

/// Counts the cgroups by kind.
fn describe(tree: &Tree, errors: &ReadErrors, row: &mut SamplerRow) {
    let (mut container, mut sandbox, mut pod, mut qos, mut unmapped, mut unkept) =
        (0, 0, 0, 0, 0, 0);
    for (_, cgroup) in tree.cgroups.iter() {
        unkept += u64::from(cgroup.files.any_unkept());
        match (&cgroup.kind, cgroup.naming) {
            (Kind::Above | Kind::Root | Kind::Partition, _) => {}
            (Kind::Qos, _) => qos += 1,
            (Kind::Pod { .. }, _) => pod += 1,
            (_, Naming::Sandbox) => sandbox += 1,
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
    ]);
    row.unkept_cgroups = unkept;
}
