//! The QEMU node. It has features that the test machine may lack: cgroup v2 and therefore PSI.

use std::net::SocketAddr;
use std::time::Duration;

use xtask::node::{Clock, CpuTopology, Forward, Guest, Node};

use crate::support::binary;

const PORT: u16 = 9753;

/// Maximum number of starts: a guest lost more often is not the emulator's fault.
const STARTS: u32 = 3;

/// A running node; stops when dropped.
pub(super) struct Emulated {
    address: SocketAddr,
    guest: Guest,
    starts: u32,
}

impl Emulated {
    /// Starts the node; its agent is reachable at this address.
    pub(super) fn start(address: SocketAddr) -> Self {
        Self { address, guest: boot(address), starts: 1 }
    }

    pub(super) fn start_again_if_lost(&mut self) {
        if self.guest.is_off().unwrap_or_else(|error| panic!("{error}")) {
            assert!(self.starts < STARTS, "the node was lost {STARTS} times");
            self.guest = boot(self.address);
            self.starts += 1;
        }
    }
}

fn boot(host: SocketAddr) -> Guest {
    let node = Node {
        // Prometheus scrapes it from outside of the guest.
        clock: Clock::Real,
        // The workloads use less than two CPUs.
        cpus: CpuTopology { sockets: 1, cores: 4, threads: 1 },
        forward: Some(Forward { host, guest_port: PORT }),
        timeout: Duration::from_secs(3600),
        ..Node::default()
    };
    let arguments = ["demo", "--duration=1h", &format!("--listen=0.0.0.0:{PORT}")];
    node.start(&binary(), &arguments).unwrap_or_else(|error| panic!("{error}"))
}
