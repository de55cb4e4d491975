//! A node that pins: a pod gets an exclusive CPU, and its language runtime has too many threads for
//! it.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Agent, Kubelet, Qos, READY, RealTree, Running, pod_list, running_pod};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0007";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

/// A running agent with its node; the fields are dropped in this order.
pub(super) struct Pinned {
    agent: Agent,
    _python: Running,
    _kubelet: Kubelet,
    _state: TempDir,
    _tree: RealTree,
}

impl Pinned {
    pub(super) fn start() -> Self {
        let tree = RealTree::new();
        let container = tree.pod(Qos::Guaranteed, UID).child(ID);
        container.set_memory_limit_bytes(256 << 20);
        let mut python = container.command("python3");
        python
            .args(["-c", &format!("print('{READY}', flush=True); input()")])
            .env("OMP_NUM_THREADS", "4");
        let (python, _) = Running::start(python, |line| line == READY);
        let (kubelet, state) = (Kubelet::start(pod_list(&[pod()])), tempfile::tempdir().unwrap());
        let options = [
            format!("--kubepods={}", tree.kubepods().path().display()),
            format!("--state-dir={}", state.path().display()),
            "--pinning=enforce".to_owned(),
            "--share-floor=1".to_owned(),
            "--sched-trace=off".to_owned(),
            "--metrics=full".to_owned(),
        ];
        let agent = Agent::start(&[&options[..], &kubelet.flags()].concat());
        Self { agent, _python: python, _kubelet: kubelet, _state: state, _tree: tree }
    }

    /// Address of the agent.
    pub(super) fn address(&self) -> SocketAddr {
        self.agent.address()
    }
}

/// The pod as the kubelet reports it.
fn pod() -> Value {
    let mut pod = running_pod(UID, "db", "ledger", ID);
    pod["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LSE"});
    pod["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    pod
}
