//! The real binary as a separate process, on a free port.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use testkit::Cgroup;

use super::exposition::Exposition;

/// A running `cpuwarden run`, killed on drop.
pub(crate) struct Agent {
    pub(super) child: Child,
    address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Agent {
    /// Starts the agent and returns as soon as it listens.
    pub(crate) fn start(args: &[impl AsRef<OsStr>]) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), args)
    }

    /// As [`start`](Self::start), at an address known in advance.
    pub(crate) fn start_at(address: SocketAddr, args: &[impl AsRef<OsStr>]) -> Self {
        Self::start_command(Command::new(super::binary()), address, args)
    }

    /// As [`start`](Self::start), in a cgroup.
    pub(crate) fn start_in(cgroup: &Cgroup, args: &[impl AsRef<OsStr>]) -> Self {
        Self::start_command(cgroup.command(super::binary()), "127.0.0.1:0".parse().unwrap(), args)
    }

    /// As [`start`](Self::start), with a command that runs the binary and passes on arguments.
    pub(crate) fn start_command(
        mut command: Command,
        address: SocketAddr,
        args: &[impl AsRef<OsStr>],
    ) -> Self {
        // Tests read metrics of every preset; a flag of the test overrides the variable.
        command.env("CPUWARDEN_METRICS", "full");
        command.args(["run", "--log-format=json", "--listen", &address.to_string()]).args(args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut log = String::new();
        let address = lines.find_map(|line| {
            log.push_str(&line);
            log.push('\n');
            serde_json::from_str::<Value>(&line).ok()?["fields"]["address"].as_str()?.parse().ok()
        });
        let Some(address) = address else { panic!("the agent did not start: {log}") };
        let log = Arc::new(Mutex::new(log));
        let shared = Arc::clone(&log);
        std::thread::spawn(move || {
            lines.for_each(|line| shared.lock().unwrap().push_str(&(line + "\n")));
        });
        Self { child, address, log }
    }

    /// Address on which the agent listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Status and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        super::http::get(self.address, path)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// The current page of `/metrics`.
    pub(crate) fn metrics(&self) -> Exposition {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "{body}\n{}", self.log());
        Exposition::new(body)
    }

    /// The agent's whole log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
