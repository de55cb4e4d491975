//! The machine's CPUs as reported by sysfs, as relations for the planner.

use std::path::Path;

use cgroupfs::node;
use kernel_text::{CpuPlace, CpuSet};
use placement::{CoreKind, Cpu, Topology};

use crate::{Error, Result};

/// CPUs of this machine and their relations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Online CPUs with their core, node and socket.
    pub topology: Topology,
    /// Possible CPUs, online or not (`possible`).
    pub possible: CpuSet,
    /// CPUs without scheduler load balancing since boot (`isolated`).
    pub isolated: CpuSet,
    /// CPUs without a tick while they run a single task (`nohz_full`).
    pub nohz_full: CpuSet,
}

impl Machine {
    /// Reads `/sys/devices/system/cpu` and `/sys/devices/system/node`.
    ///
    /// For missing files the smallest unit is assumed: a core of its own, node 0, socket 0.
    ///
    /// # Errors
    /// No list of online CPUs, or impossible relations between CPUs.
    pub fn read(sys_root: &Path) -> Result<Self> {
        let online = node::cpu_list(sys_root, "online")?;
        let hybrid = node::hybrid_cpus(sys_root);
        let cpu = |place: &CpuPlace| cpu(place, hybrid.as_ref());
        let cpus = node::cpu_places(sys_root, &online).iter().map(cpu).collect();
        let topology = Topology::ranked(cpus).map_err(Error::Topology)?;
        // Kernels without CPU isolation or full dynticks lack these files.
        let list = |name| node::cpu_list(sys_root, name).unwrap_or_default();
        Ok(Self {
            topology: topology.with_distances(node::numa_distances(sys_root)),
            possible: list("possible").union(&online),
            isolated: list("isolated"),
            nohz_full: list("nohz_full"),
        })
    }

    /// CPUs that are possible but not online.
    #[must_use]
    pub fn offline(&self) -> CpuSet {
        self.possible.difference(self.topology.online())
    }
}

fn cpu(place: &CpuPlace, hybrid: Option<&(CpuSet, CpuSet)>) -> Cpu {
    let kind = hybrid.and_then(|(performance, efficiency)| match place.cpu {
        cpu if performance.contains(cpu) => Some(CoreKind::Performance),
        cpu if efficiency.contains(cpu) => Some(CoreKind::Efficiency),
        _ => None,
    });
    Cpu {
        id: place.cpu,
        core: place.core.unwrap_or(place.cpu),
        l3: place.llc.or(place.cluster),
        die: place.die,
        node: place.numa_node.unwrap_or(0),
        socket: place.socket.unwrap_or(0),
        kind,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new(online: &str, possible: &str) -> Self {
            let sys = Self(tempfile::tempdir().unwrap());
            sys.file("system/cpu/online", online);
            sys.file("system/cpu/possible", possible);
            sys
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join("devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn cpu(&self, cpu: u32, siblings: &str, l3: &str, socket: u32) {
            let file =
                |name: &str, text: &str| self.file(&format!("system/cpu/cpu{cpu}/{name}"), text);
            file("topology/thread_siblings_list", siblings);
            file("topology/physical_package_id", &socket.to_string());
            file("cache/index3/shared_cpu_list", l3);
        }

        fn read(&self) -> Machine {
            Machine::read(self.0.path()).unwrap()
        }
    }

    /// 2 sockets × 2 cores × 2 threads, siblings n and n + 4, one NUMA node per socket; CPU 7 is
    /// offline.
    fn eight() -> Sys {
        let sys = Sys::new("0-6", "0-7");
        for (cpu, siblings) in [(0, "0,4"), (1, "1,5"), (4, "0,4"), (5, "1,5")] {
            sys.cpu(cpu, siblings, "0-1,4-5", 0);
        }
        for (cpu, siblings) in [(2, "2,6"), (3, "3"), (6, "2,6")] {
            sys.cpu(cpu, siblings, "2-3,6", 1);
        }
        sys.file("system/node/online", "0-1");
        for (node, cpus, distance) in [(0, "0-1,4-5", "10 21"), (1, "2-3,6", "21 10")] {
            sys.file(&format!("system/node/node{node}/cpulist"), cpus);
            sys.file(&format!("system/node/node{node}/distance"), distance);
        }
        sys
    }

    fn texts<K: std::fmt::Display>(groups: &std::collections::BTreeMap<K, CpuSet>) -> Vec<String> {
        groups.iter().map(|(id, cpus)| format!("{id}:{cpus}")).collect()
    }

    #[test]
    fn topology_relations_do_not_depend_on_cpu_numbers() {
        let machine = eight().read();
        let topology = &machine.topology;
        assert_eq!(texts(topology.cores()), ["0:0,4", "1:1,5", "2:2,6", "3:3"]);
        assert_eq!(texts(topology.nodes()), ["0:0-1,4-5", "1:2-3,6"]);
        assert_eq!(texts(topology.sockets()), ["0:0-1,4-5", "1:2-3,6"]);
        assert_eq!((topology.distance(0, 1), topology.distance(1, 1)), (Some(21), Some(10)));
        assert_eq!(machine.offline().to_string(), "7");
        assert_eq!(topology.cpu(6).unwrap().l3, Some(2));
    }

    #[test]
    fn a_cpu_that_comes_back_is_there_again() {
        let sys = eight();
        let before = sys.read();
        sys.file("system/cpu/online", "0-7");
        sys.cpu(7, "3,7", "2-3,6-7", 1);
        sys.cpu(3, "3,7", "2-3,6-7", 1);
        sys.file("system/node/node1/cpulist", "2-3,6-7");
        let after = sys.read();
        assert_ne!(before, after);
        assert_eq!(texts(after.topology.cores())[3], "3:3,7");
    }

    #[test]
    fn a_hybrid_processor_has_two_kinds_of_cores() {
        let sys = Sys::new("0-2", "0-2");
        sys.cpu(0, "0-1", "0-2", 0);
        sys.cpu(1, "0-1", "0-2", 0);
        sys.cpu(2, "2", "0-2", 0);
        sys.file("cpu_core/cpus", "0-1\n");
        sys.file("cpu_atom/cpus", "2\n");
        let kinds: Vec<_> = sys.read().topology.cpus().iter().map(|cpu| cpu.kind).collect();
        let (performance, efficiency) = (Some(CoreKind::Performance), Some(CoreKind::Efficiency));
        assert_eq!(kinds, [performance, performance, efficiency]);
    }

    #[test]
    fn without_topology_files_all_cpus_are_cores_of_one_node() {
        let machine = Sys::new("0,2", "0-2").read();
        assert_eq!(texts(machine.topology.cores()), ["0:0", "1:2"]);
        assert_eq!(texts(machine.topology.nodes()), ["0:0,2"]);
        assert!(machine.isolated.is_empty() && machine.nohz_full.is_empty());
    }

    #[test]
    fn this_machine_has_the_cpus_that_its_scheduler_offers() {
        let machine = Machine::read(Path::new("/sys")).unwrap();
        let threads = std::thread::available_parallelism().unwrap().get();
        assert!(machine.topology.online().len() >= threads);
        let in_cores: usize = machine.topology.cores().values().map(CpuSet::len).sum();
        assert_eq!(in_cores, machine.topology.online().len());
    }
}
