//! `cpuwarden demo` as a node.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::http::get;
use crate::support::{binary, eventually};

/// A running demo; it removes its cgroups when dropped.
pub(super) struct Demo {
    child: Child,
}

impl Demo {
    /// Starts the demo with its agent at this address.
    pub(super) fn start(address: SocketAddr) -> Self {
        let mut command = Command::new(binary());
        command
            .args(["demo", "--duration", "10m", "--listen", &address.to_string()])
            .stdin(Stdio::null());
        let demo = Self { child: command.stdout(Stdio::null()).spawn().unwrap() };
        // A replay, used without root, has other pods.
        eventually("the demo's real workloads, as root", || {
            get(address, "/metrics").is_ok_and(|(_, page)| page.contains(r#"pod="thumbnails""#))
        });
        demo
    }

    /// The demo's root cgroup, below the hierarchies.
    pub(super) fn kubepods(&self) -> String {
        format!("cpuwarden-demo-{}/kubepods", self.child.id())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
