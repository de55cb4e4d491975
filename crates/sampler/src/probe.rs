//! The node's own rows: CPUs, kernel, steal, pressure, and the cost of this process.

use std::path::{Path, PathBuf};

use cgroupfs::{Hierarchy, KeptFile, node};
use kernel_text::{CpuSet, Pressure, USER_TICK_NS, WeightRule, parse_u64};
use snapshot::{FeatureState, KernelInfo, NodeRow, SamplerRow};

use crate::counter::{Context, Counter, Unit};
use crate::own_process::OwnProcess;

/// Maximum number of CPUs that Linux supports on any architecture.
const MAX_CPUS: u32 = 8192;

/// Kept files of the node, and its constant values.
pub(crate) struct NodeProbe {
    proc_root: PathBuf,
    sys_root: PathBuf,
    stat: Option<KeptFile>,
    pressure: Option<KeptFile>,
    /// The kernel's value may decrease if a hypervisor corrects itself.
    steal: Total,
    idle: Total,
    waiting: Total,
    process: OwnProcess,
    pub(crate) kernel: KernelInfo,
    row: NodeRow,
}

/// Total of a counter of the node since the agent started.
#[derive(Debug, Default)]
struct Total {
    counter: Counter,
    ns: u64,
}

impl Total {
    fn advance(&mut self, ns: u64, context: &mut Context<'_>) -> u64 {
        self.ns += self.counter.advance(ns, Unit::CpuTime, context);
        self.ns
    }
}

impl NodeProbe {
    pub(crate) fn new(proc_root: &Path, sys_root: &Path, hierarchy: &Hierarchy) -> Self {
        let release = node::kernel_release(proc_root);
        let kernel = KernelInfo {
            cgroup_version: hierarchy.version_name(),
            cgroup_driver: "unknown",
            throttle_accounting: throttle_accounting(&release),
            psi: node::Psi::Absent.as_str(),
            btf: node::has_btf(sys_root),
            release,
            weight_rule: WeightRule::default(),
        };
        let mut probe = Self {
            proc_root: proc_root.to_owned(),
            sys_root: sys_root.to_owned(),
            stat: None,
            pressure: None,
            steal: Total::default(),
            idle: Total::default(),
            waiting: Total::default(),
            process: OwnProcess::new(),
            kernel,
            row: NodeRow::default(),
        };
        probe.open_missing();
        probe.read_topology();
        probe
    }

    /// Opens the missing files: no descriptor may have been free before.
    pub(crate) fn open_missing(&mut self) {
        let open = |file: &mut Option<KeptFile>, directory: &Path, name| {
            if file.is_none() {
                *file = KeptFile::open(directory, name).ok().flatten();
            }
        };
        open(&mut self.stat, &self.proc_root, "stat");
        self.process.open_missing();
        if self.pressure.is_none() {
            let psi = node::psi(&self.proc_root);
            self.kernel.psi = psi.as_str();
            if psi == node::Psi::On {
                open(&mut self.pressure, &self.proc_root.join("pressure"), "cpu");
            }
        }
    }

    /// Reads again the values that rarely change.
    pub(crate) fn read_slow(&mut self) {
        self.read_topology();
        self.process.count_descriptors();
    }

    /// Reads the CPUs and their topology again; they change with hotplug. Keeps the old values if a
    /// list cannot be read.
    fn read_topology(&mut self) {
        let Ok(lists) = self.cpu_lists() else { return };
        let online = lists.iter().find(|(state, _)| *state == "online");
        self.row.cpu_info =
            online.map(|(_, online)| node::cpu_places(&self.sys_root, online)).unwrap_or_default();
        self.row.cpus = lists.into_iter().map(|(state, list)| (state, list.len() as u32)).collect();
    }

    /// Maximum number of CPUs that can run at a time; the kernel's own maximum if it is unknown.
    pub(crate) fn max_cpus(&self) -> u32 {
        let state = |wanted| self.row.cpus.iter().find(|(state, _)| *state == wanted);
        state("possible").or_else(|| state("online")).map_or(MAX_CPUS, |&(_, cpus)| cpus)
    }

    /// CPUs by state, without the states that this kernel lacks or prints in another form.
    fn cpu_lists(&self) -> cgroupfs::Result<Vec<(&'static str, CpuSet)>> {
        let states = ["online", "offline", "possible", "present", "isolated", "nohz_full"];
        let lists = states.into_iter().map(|state| match node::cpu_list(&self.sys_root, state) {
            Err(error) if error.is_vanished() || error.raw_os_error().is_none() => Ok(None),
            list => list.map(|list| Some((state, list))),
        });
        lists.filter_map(Result::transpose).collect()
    }

    /// Writes the node's row into `into`.
    pub(crate) fn publish(
        &mut self,
        into: &mut NodeRow,
        features: &[FeatureState],
        buffer: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) {
        into.cpus.clone_from(&self.row.cpus);
        into.cpu_info.clone_from(&self.row.cpu_info);
        let times = |text: &[u8]| Some((steal_ns(text), idle_ns(text)));
        let (steal_ns, idle_ns) = read(self.stat.as_ref(), buffer, times).unwrap_or_default();
        into.steal_ns = steal_ns.map(|ns| self.steal.advance(ns, context));
        into.idle_ns = idle_ns.map(|ns| self.idle.advance(ns, context));
        let some_ns = |text: &[u8]| Pressure::parse(text).ok()?.some_ns;
        let waiting_ns = read(self.pressure.as_ref(), buffer, some_ns);
        into.pressure_waiting_ns = waiting_ns.map(|ns| self.waiting.advance(ns, context));
        if into.kernel != self.kernel {
            into.kernel = self.kernel.clone();
        }
        if into.features != features {
            into.features = features.to_vec();
        }
    }

    /// Writes the cost of this process into `into`.
    pub(crate) fn publish_own_cost(&self, into: &mut SamplerRow, buffer: &mut Vec<u8>) {
        into.process = self.process.read(buffer);
    }
}

fn read<T>(
    file: Option<&KeptFile>,
    buffer: &mut Vec<u8>,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    parse(file?.read(buffer).ok()?)
}

/// Steal time: the eighth number in the first line of `/proc/stat`,
/// `cpu user nice system idle iowait irq softirq steal …`.
fn steal_ns(text: &[u8]) -> Option<u64> {
    node_time_ns(text, 7)
}

/// Time without work, which includes the time in which tasks only waited for a disk.
fn idle_ns(text: &[u8]) -> Option<u64> {
    node_time_ns(text, 3)?.checked_add(node_time_ns(text, 4)?)
}

/// The number at this position in the first line of `/proc/stat`.
fn node_time_ns(text: &[u8], position: usize) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').next()?.strip_prefix(b"cpu ")?;
    let mut numbers = line.split(|&byte| byte == b' ').filter(|number| !number.is_empty());
    let ticks = parse_u64("stat", numbers.nth(position)?).ok()?;
    ticks.checked_mul(USER_TICK_NS)
}

/// Kind of throttle accounting. From Linux 6.18 a task is throttled when it returns to user space;
/// before, its whole run queue is. The two are not comparable (sched/fair: "task based
/// throttling").
fn throttle_accounting(release: &str) -> &'static str {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= (6, 18) => "task",
        (Some(_), Some(_)) => "cfs_rq",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_the_first_line() {
        // uname -r 6.1.
        assert_eq!(
            steal_ns(b"cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n"),
            Some(2_500_000_000)
        );
        assert_eq!(steal_ns(b"cpu  1 2 3\n"), None);
        assert_eq!(steal_ns(b""), None);
        assert_eq!(idle_ns(b"cpu  1 2 3 40 5 6 7 250 0 0\n"), Some(450_000_000));
    }

    #[test]
    fn steal_begins_at_zero_never_falls_and_ignores_impossible_values() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
        let steal = |ticks: u64| {
            std::fs::write(root.path().join("stat"), format!("cpu  1 2 3 4 5 6 7 {ticks} 0 0\n"))
                .unwrap();
        };
        steal(250);
        let mut probe =
            NodeProbe::new(root.path(), root.path(), &Hierarchy::detect(root.path()).unwrap());
        let (mut row, mut implausible) = (NodeRow::default(), 0);
        let shown = [250, 249, 0, 250, 251, 170_000_000_000, 253].map(|ticks| {
            steal(ticks);
            let mut context = Context {
                now: Instant::now(),
                cpus: 4,
                created_after: None,
                implausible: &mut implausible,
            };
            probe.publish(&mut row, &[], &mut Vec::new(), &mut context);
            row.steal_ns.unwrap() / USER_TICK_NS
        });
        assert_eq!((shown, implausible), ([0, 0, 0, 0, 1, 1, 3], 1));
    }

    #[test]
    fn the_kernel_release_selects_the_accounting_model() {
        let models = ["6.1.0-56-cloud-amd64", "6.17.9", "6.18.44-fc-v595", "7.0-rc1", "strange"];
        assert_eq!(
            models.map(throttle_accounting),
            ["cfs_rq", "cfs_rq", "task", "task", "unknown"]
        );
    }
}
