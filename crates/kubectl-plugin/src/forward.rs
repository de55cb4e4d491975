//! A port of a pod, forwarded to this machine.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::agents::AgentPod;
use crate::kubectl::{Error, Kubectl, failed};

/// Pause between checks whether kubectl has ended, and before the next start.
const LOOK: Duration = Duration::from_millis(500);

/// A running `kubectl port-forward`, ended on drop.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    process: Arc<Process>,
}

impl Forward {
    /// Forwards a free port of 127.0.0.1 to the endpoint of an agent.
    ///
    /// # Errors
    /// kubectl cannot be started, or the API server or the node's kubelet rejects the connection.
    pub fn start(kubectl: &Kubectl, agent: &AgentPod) -> Result<Self, Error> {
        let process = Arc::new(Process::default());
        let address = process.start(kubectl, agent, None)?;
        Ok(Self { address, process })
    }

    /// Starts kubectl again whenever it ends, as it does when the agent's container ends: with the
    /// same port, for the pod that `find` then returns.
    pub fn keep(
        &self,
        kubectl: Kubectl,
        find: impl Fn(&Kubectl) -> Result<AgentPod, Error> + Send + 'static,
    ) {
        let (process, port) = (Arc::clone(&self.process), self.address.port());
        thread::spawn(move || {
            loop {
                thread::sleep(LOOK);
                match process.state() {
                    ForwardState::Running => {}
                    // Until it succeeds: the view says meanwhile that the agent does not answer.
                    ForwardState::Ended => {
                        let _ = find(&kubectl)
                            .and_then(|agent| process.start(&kubectl, &agent, Some(port)));
                    }
                    ForwardState::Dropped => return,
                }
            }
        });
    }

    /// Address on this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let mut child = self.process.lock();
        if let ForwardSlot::Started(child) = &mut *child {
            let _ = child.kill();
            let _ = child.wait();
        }
        *child = ForwardSlot::Dropped;
    }
}

/// The process of a forwarded port. Behind a lock, so that a process that starts while the value is
/// dropped does not stay.
#[derive(Debug, Default)]
struct Process(Mutex<ForwardSlot>);

#[derive(Debug, Default)]
enum ForwardSlot {
    #[default]
    Empty,
    Started(Child),
    Dropped,
}

/// State of the process.
enum ForwardState {
    Running,
    Ended,
    Dropped,
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, ForwardSlot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> ForwardState {
        match &mut *self.lock() {
            ForwardSlot::Dropped => ForwardState::Dropped,
            ForwardSlot::Empty => ForwardState::Ended,
            ForwardSlot::Started(child) => match child.try_wait() {
                Ok(None) => ForwardState::Running,
                _ => ForwardState::Ended,
            },
        }
    }

    /// Starts kubectl and waits until it forwards; `port` is any free one by default. Must be
    /// called only if no process runs.
    fn start(
        &self,
        kubectl: &Kubectl,
        agent: &AgentPod,
        port: Option<u16>,
    ) -> Result<SocketAddr, Error> {
        let port = port.map(|port| port.to_string()).unwrap_or_default();
        let (pod, ports) = (format!("pod/{}", agent.name), format!("{port}:{}", agent.port));
        let namespace = agent.namespace.as_str();
        let arguments =
            ["port-forward", "--address=127.0.0.1", "--namespace", namespace, &pod, &ports];
        let mut command = kubectl.command(&arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut slot = self.lock();
        if matches!(*slot, ForwardSlot::Dropped) {
            return Err(failed(&arguments, b"not needed any more"));
        }
        let mut child = command.spawn().map_err(|error| kubectl.not_started(error))?;
        let (lines, mut stderr) = (child.stdout.take().map(BufReader::new), child.stderr.take());
        *slot = ForwardSlot::Started(child);
        drop(slot);
        let Some((address, mut lines)) = lines.and_then(address) else {
            let mut errors = Vec::new();
            if let ForwardSlot::Started(child) = &mut *self.lock() {
                let _ = child.kill();
                let _ = stderr.take().map(|mut stderr| stderr.read_to_end(&mut errors));
                let _ = child.wait();
            }
            return Err(failed(&arguments, &errors));
        };
        // kubectl writes a line for each connection, and would stop at a full pipe.
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        if let Some(mut stderr) = stderr {
            thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
        }
        Ok(address)
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
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    use super::*;
    use crate::agents::Scheme;
    use crate::script::scripted;

    fn agent(name: &str) -> AgentPod {
        let (namespace, name) = ("cpuwarden".to_owned(), name.to_owned());
        AgentPod { namespace, name, port: 9753, scheme: Scheme::Http }
    }

    fn start(script: &str) -> (tempfile::TempDir, Result<Forward, Error>) {
        let dir = tempfile::tempdir().unwrap();
        let forward = Forward::start(&scripted(&dir, script, &[]), &agent("cpuwarden-x"));
        (dir, forward)
    }

    /// Waits until the file contains the text; the limit is only for a test that hangs.
    fn wait_for(path: &Path, text: &str) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let found = fs::read_to_string(path).unwrap_or_default();
            if found.contains(text) {
                return found;
            }
            assert!(Instant::now() < end, "{text:?} is not in {found:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn the_port_that_kubectl_chose_is_used_and_kubectl_ends_with_it() {
        let (_dir, forward) =
            start("echo note; echo 'Forwarding from 127.0.0.1:40011 -> 9753'; exec sleep 600");
        let forward = forward.unwrap();
        assert_eq!(forward.address(), "127.0.0.1:40011".parse().unwrap());
        let id = match &*forward.process.lock() {
            ForwardSlot::Started(child) => child.id(),
            slot => panic!("{slot:?}"),
        };
        let process = PathBuf::from(format!("/proc/{id}"));
        assert!(process.exists());
        drop(forward);
        assert!(!process.exists());
    }

    #[test]
    fn a_port_is_forwarded_again_to_the_agent_that_runs_then() {
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        // Ends at once for the first pod, as when its container ends.
        let script = format!(
            r#"echo "$*" >> {}; echo 'Forwarding from 127.0.0.1:40011 -> 9753'
            case "$*" in *cpuwarden-y*) exec sleep 600 ;; esac"#,
            calls.display()
        );
        let kubectl = scripted(&dir, &script, &[]);
        let forward = Forward::start(&kubectl, &agent("cpuwarden-x")).unwrap();
        forward.keep(kubectl, |_| Ok(agent("cpuwarden-y")));
        let calls = wait_for(&calls, "pod/cpuwarden-y");
        let ports: Vec<_> = calls.lines().map(|call| call.split(' ').next_back()).collect();
        assert_eq!(ports, [Some(":9753"), Some("40011:9753")], "{calls}");
        let process = Arc::clone(&forward.process);
        assert!(matches!(process.state(), ForwardState::Running));
        drop(forward);
        assert!(matches!(process.state(), ForwardState::Dropped));
    }

    #[test]
    fn lines_may_end_as_those_of_windows_do() {
        let (_dir, forward) =
            start(r"printf 'Forwarding from 127.0.0.1:40011 -> 9753\r\n'; exec sleep 600");
        assert_eq!(forward.unwrap().address(), "127.0.0.1:40011".parse().unwrap());
        let (_dir, forward) = start(r"printf 'error: no\r\n\r\n' >&2; exit 1");
        let error = forward.unwrap_err().to_string();
        assert!(error.ends_with(":9753: error: no"), "{error:?}");
    }

    #[test]
    fn a_rejected_connection_repeats_the_words_of_kubectl() {
        let (_dir, forward) = start("echo 'error: unable to forward port' >&2; exit 1");
        let error = forward.unwrap_err().to_string();
        assert!(error.ends_with("unable to forward port"), "{error}");
        assert!(error.contains("pod/cpuwarden-x :9753"), "{error}");
    }
}
