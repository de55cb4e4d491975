//! Regular machines for tests, benches and diagrams: all sockets, nodes and cores are alike.

use super::{Cpu, Topology};

/// Numbering of the threads of a machine's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Siblings are adjacent: n, n + 1.
    Sequential,
    /// All first threads, then all second ones: n, n + N / 2.
    ThreadMajor,
    /// Sockets alternate, as with some firmware; siblings as in [`Numbering::ThreadMajor`].
    SocketInterleaved,
}

/// A machine with identical sockets, nodes and cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Number of sockets.
    pub sockets: u32,
    /// NUMA nodes per socket.
    pub nodes_per_socket: u32,
    /// Cores per NUMA node.
    pub cores_per_node: u32,
    /// Threads per core.
    pub threads_per_core: u32,
    /// Numbering of the threads.
    pub numbering: Numbering,
}

impl Grid {
    /// All CPUs, all online. Cores, nodes and sockets are numbered from 0 without gaps.
    #[must_use]
    pub fn cpus(self) -> Vec<Cpu> {
        let threads = |core| (0..self.threads_per_core).map(move |thread| self.cpu(core, thread));
        (0..self.cores()).flat_map(threads).collect()
    }

    /// Topology of the machine.
    ///
    /// # Panics
    /// If a dimension is zero, or there are more CPUs than a kernel supports.
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
            Numbering::SocketInterleaved => {
                thread * self.cores() + core % per_socket * self.sockets + socket
            }
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
            let grid = Grid {
                sockets: 2,
                nodes_per_socket: 1,
                cores_per_node: 4,
                threads_per_core: 2,
                numbering,
            };
            let topology = grid.topology();
            assert_eq!(topology.online().to_string(), "0-15");
            topology.cores()[&5].to_string()
        };
        assert_eq!(core(Numbering::Sequential), "10-11");
        assert_eq!(core(Numbering::ThreadMajor), "5,13");
        assert_eq!(core(Numbering::SocketInterleaved), "3,11");
    }
}
