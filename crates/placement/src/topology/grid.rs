//! Regular machines, for tests, benches and drawings: every socket, node and core alike.

use super::{Cpu, Topology};

/// How a machine numbers the threads of its cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Siblings are neighbours: n, n + 1.
    Sequential,
    /// All first threads, then all second ones: n, n + N / 2.
    ThreadMajor,
    /// Sockets take turns, as some firmware numbers them; siblings as in [`Numbering::ThreadMajor`].
    SocketInterleaved,
}

/// A machine in which every socket, node and core is alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Sockets.
    pub sockets: u32,
    /// NUMA nodes of a socket.
    pub nodes_per_socket: u32,
    /// Cores of a NUMA node.
    pub cores_per_node: u32,
    /// Threads of a core.
    pub threads_per_core: u32,
    /// Numbering of the threads.
    pub numbering: Numbering,
}

impl Grid {
    /// Its CPUs, all online. Cores, nodes and sockets are numbered from 0 without holes.
    #[must_use]
    pub fn cpus(self) -> Vec<Cpu> {
        let threads = |core| (0..self.threads_per_core).map(move |thread| self.cpu(core, thread));
        (0..self.cores()).flat_map(threads).collect()
    }

    /// The machine as relations.
    ///
    /// # Panics
    /// When a dimension is zero, or the CPUs are more than a kernel can have.
    #[must_use]
    pub fn topology(self) -> Topology {
        Topology::new(self.cpus()).expect("a grid of at least one CPU is regular")
    }

    fn cores(self) -> u32 {
        self.sockets * self.nodes_per_socket * self.cores_per_node
    }

    fn cpu(self, core: u32, thread: u32) -> Cpu {
        let node = core / self.cores_per_node;
        let socket = node / self.nodes_per_socket;
        let per_socket = self.nodes_per_socket * self.cores_per_node;
        let id = match self.numbering {
            Numbering::Sequential => core * self.threads_per_core + thread,
            Numbering::ThreadMajor => thread * self.cores() + core,
            Numbering::SocketInterleaved => thread * self.cores() + core % per_socket * self.sockets + socket,
        };
        Cpu { id, core, l3: Some(node), die: Some(0), node, socket, kind: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numberings_differ_only_in_the_names_of_the_threads() {
        let core = |numbering| {
            let grid = Grid { sockets: 2, nodes_per_socket: 1, cores_per_node: 4, threads_per_core: 2, numbering };
            let topology = grid.topology();
            assert_eq!(topology.online().to_string(), "0-15");
            topology.cores()[&5].to_string()
        };
        assert_eq!(core(Numbering::Sequential), "10-11");
        assert_eq!(core(Numbering::ThreadMajor), "5,13");
        assert_eq!(core(Numbering::SocketInterleaved), "3,11");
    }
}
