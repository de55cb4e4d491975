//! A port of a pod, forwarded to this machine.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};

use crate::agents::AgentPod;
use crate::kubectl::{Error, Kubectl, failed};

/// A running `kubectl port-forward`, ended on drop.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    child: Child,
}

impl Forward {
    /// Forwards a free port of 127.0.0.1 to the endpoint of an agent.
    ///
    /// # Errors
    /// kubectl cannot be started, or the API server or the node's kubelet rejects the connection.
    pub fn start(kubectl: &Kubectl, agent: &AgentPod) -> Result<Self, Error> {
        let (pod, port) = (format!("pod/{}", agent.name), format!(":{}", agent.port));
        let namespace = agent.namespace.as_str();
        let arguments =
            ["port-forward", "--address=127.0.0.1", "--namespace", namespace, &pod, &port];
        let mut child = kubectl
            .command(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| kubectl.not_started(error))?;
        let lines = child.stdout.take().map(BufReader::new);
        let Some((address, lines)) = lines.and_then(address) else {
            let _ = child.kill();
            let mut errors = Vec::new();
            let _ = child.stderr.take().map(|mut stderr| stderr.read_to_end(&mut errors));
            let _ = child.wait();
            return Err(failed(&arguments, &errors));
        };
        // kubectl writes a line for each connection, and would stop at a full pipe.
        std::thread::spawn(move || io::copy(&mut { lines }, &mut io::sink()));
        if let Some(mut stderr) = child.stderr.take() {
            std::thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
        }
        Ok(Self { address, child })
    }

    /// Address on this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in `Forwarding from 127.0.0.1:40011 -> 9753`; `None` if the output ends before.
fn address(mut lines: BufReader<ChildStdout>) -> Option<(SocketAddr, BufReader<ChildStdout>)> {
    let mut line = String::new();
    while lines.read_line(&mut line).ok()? > 0 {
        let address = line.strip_prefix("Forwarding from ");
        let address = address.and_then(|rest| rest.split_once(" -> ")?.0.parse().ok());
        if let Some(address) = address {
            return Some((address, lines));
        }
        line.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Scheme;
    use crate::script::scripted;

    fn start(script: &str) -> (tempfile::TempDir, Result<Forward, Error>) {
        let dir = tempfile::tempdir().unwrap();
        let agent = AgentPod {
            namespace: "cpuwarden".into(),
            name: "cpuwarden-x".into(),
            port: 9753,
            scheme: Scheme::Http,
        };
        let forward = Forward::start(&scripted(&dir, script, &[]), &agent);
        (dir, forward)
    }

    #[test]
    fn the_port_that_kubectl_chose_is_used_and_kubectl_ends_with_it() {
        let (_dir, forward) =
            start("echo note; echo 'Forwarding from 127.0.0.1:40011 -> 9753'; exec sleep 600");
        let forward = forward.unwrap();
        assert_eq!(forward.address(), "127.0.0.1:40011".parse().unwrap());
        let process = std::path::PathBuf::from(format!("/proc/{}", forward.child.id()));
        assert!(process.exists());
        drop(forward);
        assert!(!process.exists());
    }

    #[test]
    fn a_rejected_connection_repeats_the_words_of_kubectl() {
        let (_dir, forward) = start("echo 'error: unable to forward port' >&2; exit 1");
        let error = forward.unwrap_err().to_string();
        assert!(error.ends_with("unable to forward port"), "{error}");
        assert!(error.contains("pod/cpuwarden-x :9753"), "{error}");
    }
}
